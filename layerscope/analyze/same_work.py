"""Whether two runs did the same work on the same machine, field by field."""

from typing import Any, Final

import msgspec

from layerscope.environment import differences as machine_differences
from layerscope.errors import InputError
from layerscope.layers.spec import LayerSpec
from layerscope.run_header import RunHeader
from layerscope.study import Study

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
