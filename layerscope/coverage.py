"""What a backend does not do of what it is asked for, and why.

Which regions of a layer it leaves to the fallback, and which switches change nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.regions import Region

Name = TypeVar("Name", bound=str)

_OF_DRAFT: Final = "it is of the draft, and this is the layer"
_OF_LAYER: Final = "it is of the layer, and this is the draft"


def left(backend: BackendSpec, spec: LayerSpec) -> dict[Region, str]:
    """Regions of `spec` that run on the fallback, and why; reads on from the name.

    Raises:
        BackendError: what the backend declines has no reason.
    """
    covers = backend.covers.get(spec.model.family, ())
    found: Mapping[Region, str] = {}
    if backend.declines is not None:
        told = backend.declines(spec)
        found = _right(told, wrong_reasons("declines", told, "regions"))
    why = {
        region: found.get(region, "") if region in covers else "does not cover it"
        for region in spec.regions
    }
    return {region: reason for region, reason in why.items() if reason}


def declined(backend: BackendSpec, spec: LayerSpec) -> dict[Region, str]:
    """Those among them that it covers."""
    covers = backend.covers.get(spec.model.family, ())
    return {name: why for name, why in left(backend, spec).items() if name in covers}


def refuse_whole(backend: BackendSpec, left: Mapping[Region, str]) -> None:
    """Refuse a step that runs a layer whole, of a backend that leaves regions of it.

    Args:
        backend: whose step is a `WholeStep`.
        left: the regions, and why.

    Raises:
        BackendError: there are some: the step would run them all the same.
    """
    if left:
        names = " and ".join(left)
        why = "; ".join(dict.fromkeys(left.values()))
        msg = (
            f"backend {backend.name} runs the layer whole, and leaves {names} to the "
            f"fallback ({why}), which would not run; tell its author"
        )
        raise BackendError(msg)


def why_all_left(backend: BackendSpec, spec: LayerSpec) -> list[str]:
    """Why it would run no region of `spec` itself; empty where it runs some."""
    why = left(backend, spec)
    return [*dict.fromkeys(why.values())] if len(why) == len(spec.regions) else []


def idle_switches(
    backend: BackendSpec, spec: LayerSpec | DraftSpec, device: DeviceFacts
) -> dict[str, str]:
    """Switches that change nothing for `spec`, and why.

    Each reason reads on from "changes nothing here: ". Where the backend runs no region
    of a layer, all of them do.

    Raises:
        BackendError: what the backend tells is no mapping of its switches to reasons.
    """
    found: Mapping[str, str] = {}
    if isinstance(spec, DraftSpec):
        if backend.idle_in_draft is not None:
            told = backend.idle_in_draft(spec, device)
            found = _right(told, wrong_idle("idle_in_draft", told, backend))
    elif why := why_all_left(backend, spec):
        reason = f"no region runs on {backend.name}, which {' and '.join(why)}"
        found = {switch.name: reason for switch in backend.switches}
    elif backend.idle is not None:
        told = backend.idle(spec, device)
        found = _right(told, wrong_idle("idle", told, backend))
    why_other = _OF_LAYER if isinstance(spec, DraftSpec) else _OF_DRAFT
    found = {**found, **dict.fromkeys(of_other(backend, spec), why_other)}
    return {
        each.name: found[each.name] for each in backend.switches if each.name in found
    }


def of_other(backend: BackendSpec, spec: LayerSpec | DraftSpec) -> list[str]:
    """Switches that are of the draft where `spec` is a layer; or the other way round.

    Such a switch is idle whatever the sizes are.
    """
    other = "layer" if isinstance(spec, DraftSpec) else "draft"
    return [switch.name for switch in backend.switches if switch.of == other]


def wrong_idle(what: str, told: object, backend: BackendSpec) -> Iterator[str]:
    """What is wrong with an answer of `backend` to which switches change nothing.

    Args:
        what: was asked, ``idle`` or ``idle_in_draft``.
        told: the answer.
        backend: who gave it.
    """
    yield from wrong_reasons(what, told, "switches")
    names = {switch.name for switch in backend.switches}
    for name in told if isinstance(told, Mapping) else ():
        if name not in names:
            yield f"{what} names {name}, which is no switch of it"


def wrong_reasons(what: str, told: object, things: str) -> Iterator[str]:
    """What is wrong with an answer that must give `things` with a reason each.

    Args:
        what: was asked, such as ``declines``.
        told: the answer.
        things: in the plural, such as "regions".
    """
    if not isinstance(told, Mapping):
        yield f"{what} answered {_shown(told)}: it must map {things} to reasons"
        return
    for name, why in told.items():
        if not is_line(why):
            yield f"{what} says of {name} {_shown(why)}, which is not one line of text"


def is_line(text: object) -> bool:
    """Whether `text` is a line that a report can print."""
    return isinstance(text, str) and bool(text.strip()) and len(text.splitlines()) == 1


def _shown(value: object) -> str:
    first, *_ = [*repr(value).splitlines(), ""]
    return first


def _right(told: Mapping[Name, str], wrong: Iterator[str]) -> Mapping[Name, str]:
    """What a backend `told`, if nothing is `wrong` with it."""
    reason = "; ".join(wrong)
    if reason:
        raise BackendError(reason)
    return told
