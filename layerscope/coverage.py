"""What a backend does not do of what it is asked for, and why.

Which regions of a layer it leaves to the fallback, and which switches change nothing.
"""

from collections.abc import Mapping

from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.regions import Region


def left(backend: BackendSpec, spec: LayerSpec) -> dict[Region, str]:
    """Regions of `spec` that run on the fallback, and why; reads on from the name."""
    covers = backend.covers.get(spec.model.family, ())
    found = {} if backend.declines is None else backend.declines(spec)
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


def idle(backend: BackendSpec, spec: LayerSpec) -> list[str]:
    """Why it would run no region of `spec` itself; empty where it runs some."""
    why = left(backend, spec)
    return [*dict.fromkeys(why.values())] if len(why) == len(spec.regions) else []


def idle_switches(
    backend: BackendSpec, spec: LayerSpec | DraftSpec, device: DeviceFacts
) -> dict[str, str]:
    """Switches that change nothing for `spec`, and why.

    Each reason reads on from "changes nothing here: ". Where the backend runs no region
    of a layer, all of them do.
    """
    found: Mapping[str, str] = {}
    if isinstance(spec, DraftSpec):
        if backend.idle_in_draft is not None:
            found = backend.idle_in_draft(spec, device)
    elif why := idle(backend, spec):
        reason = f"no region runs on {backend.name}, which {' and '.join(why)}"
        found = {switch.name: reason for switch in backend.switches}
    elif backend.idle is not None:
        found = backend.idle(spec, device)
    return {
        each.name: found[each.name] for each in backend.switches if each.name in found
    }
