"""Which regions of a layer a backend leaves to the fallback, and why."""

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


def idle(backend: BackendSpec, spec: LayerSpec) -> list[str]:
    """Why it would run no region of `spec` itself; empty where it runs some."""
    why = left(backend, spec)
    return [*dict.fromkeys(why.values())] if len(why) == len(spec.regions) else []
