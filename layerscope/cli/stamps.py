"""Arms whose kernels note when their blocks work: ``--stamps``."""

from collections.abc import Iterator

import msgspec

from layerscope import coverage, registry
from layerscope.errors import InputError
from layerscope.layers.spec import LayerSpec
from layerscope.study import Arm, Study


def with_stamps(study: Study, spec: LayerSpec) -> Study:
    """`study` with every arm once more, with stamps, where its backend has some.

    These are builds of their own, which are timed beside the others: what the stamps
    cost is the difference.

    Args:
        study: of a layer.
        spec: the study's own.

    Raises:
        InputError: no arm of the study has stamps here; says why of each.
        BackendError: a backend cannot be loaded.
    """
    why = dict(_why_not(study, spec))
    stamped = tuple(arm for arm in study.arms if arm.name not in why)
    if not stamped:
        reasons = "; ".join(f"{arm} {reason}" for arm, reason in why.items())
        msg = (
            f"--stamps: {reasons}; name an arm that has some: layerscope backends "
            "lists them"
        )
        raise InputError(msg)
    return msgspec.structs.replace(
        study,
        stamp_arms=tuple(msgspec.structs.replace(arm, stamps=True) for arm in stamped),
    )


def _why_not(study: Study, spec: LayerSpec) -> Iterator[tuple[str, str]]:
    """Arms without stamps, by name, each with a reason that reads on from it."""
    for arm in study.arms:
        reason = _why_no_stamps(arm, spec)
        if reason:
            yield arm.name, reason


def _why_no_stamps(arm: Arm, spec: LayerSpec) -> str:
    backend = registry.load(arm.backend)
    if not backend.stamps:
        return "has no stamps"
    left = coverage.left(backend, spec)
    if set(spec.regions) <= left.keys():
        return f"runs no region here ({next(iter(left.values()))})"
    return ""
