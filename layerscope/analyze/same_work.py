"""Whether two runs did the same work on the same machine, field by field."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from layerscope.environment import differences as machine_differences
from layerscope.errors import InputError
from layerscope.layers.spec import LayerSpec
from layerscope.run_header import RunHeader
from layerscope.study import Study
from layerscope.trace_spec import TraceSpec

_NO_WORK: Final = ("model.vocab_size", "model.layers", "tolerance")
"""Fields of a spec that no pass of what it describes takes time for."""


def differences(base: RunHeader, other: RunHeader) -> list[str]:
    """Each field in which two runs differ and must not, as ``rows: 6 against 8``.

    Those are the fields of the spec; of the plan, the seed, the number of input steps
    and the lengths of replays, which fix routing and what a cache may hold; and
    `environment.CHECKED_FIELDS`.

    Args:
        base: the run that is compared with.
        other: the run compared.
    """
    machine = machine_differences(base.environment, other.environment)
    left, right = _work(base.study), _work(other.study)
    if left["type"] != right["type"]:
        return [f"type: {left['type']} against {right['type']}", *machine]
    names = [name for name in {**left, **right} if name not in _NO_WORK]
    if left.get("model.name") != right.get("model.name"):
        # their shapes differ as well, which says nothing more
        shape = {name for name in names if name.startswith("model.")}
        names = [name for name in names if name not in shape - {"model.name"}]
    work = [
        f"{name}: {_told(left.get(name))} against {_told(right.get(name))}"
        for name in names
        if left.get(name) != right.get(name)
    ]
    return [*work, *machine]


def observed_differences(
    base: RunHeader, other: RunHeader, pairs: Iterable[tuple[str, str]]
) -> list[str]:
    """What arms of two runs differ in, where at least one was made of a trace.

    A trace does not say which work it did. What can be held against each other are the
    kinds of steps, the layers of a step where some step is whole, and what both tell of
    the machine.

    Args:
        base: the run that is compared with.
        other: the run compared.
        pairs: arms, one of each run.
    """
    found = []
    for one, another in pairs:
        (kind, layers), (other_kind, other_layers) = (
            _found_in(base, one),
            _found_in(other, another),
        )
        if kind and other_kind and kind != other_kind:
            found.append(f"steps: {kind} against {other_kind}")
        if None not in (layers, other_layers) and layers != other_layers:
            found.append(f"layers of {one}: {layers} against {other_layers}")
    machine = machine_differences(base.environment, other.environment, only_told=True)
    return [*dict.fromkeys(found), *machine]


def _found_in(header: RunHeader, arm: str) -> tuple[str, int | None]:
    """The kind of steps of an arm, and the layers of one; empty and None if unknown."""
    spec = header.study.spec
    if isinstance(spec, TraceSpec):
        steps = spec.steps_of(arm)
        return steps.kind, None if steps.is_cut else steps.layers
    return "", spec.model.layers if isinstance(spec, LayerSpec) else None


def refuse_different(base: RunHeader, other: RunHeader, advice: str) -> None:
    """Refuse two runs that must not be compared.

    Args:
        base: the run that is compared with.
        other: the run compared.
        advice: what to do instead.

    Raises:
        InputError: naming every field of `differences`.
    """
    found = differences(base, other)
    if found:
        named = "; ".join(found)
        msg = f"the runs differ in work or machine: {named}; {advice}"
        raise InputError(msg)


def _work(study: Study) -> dict[str, Any]:
    """Everything that fixes the work of a pass, by name."""
    spec: dict[str, Any] = msgspec.to_builtins(study.spec)
    work: dict[str, Any] = {"type": spec.pop("type")}
    model = spec.pop("model", None)
    if isinstance(model, dict):
        work |= {f"model.{name}": value for name, value in model.items()}
    elif model is not None:
        work["model.name"] = model
    if isinstance(study.spec, LayerSpec):
        work["rows"] = study.spec.rows
    plan = {"seed": study.seed, "steps": study.steps, "lengths": list(study.lengths)}
    return work | spec | plan


def _told(value: object) -> str:
    """A value as people read it."""
    match value:
        case dict() if value:
            return ", ".join(f"{name} = {_told(item)}" for name, item in value.items())
        case [_, *_]:
            return ", ".join(map(str, value))
        case None | [] | dict():
            return "none"
        case _:
            return str(value)
