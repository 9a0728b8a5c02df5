"""What layerscope is told of this backend."""

from typing import Final

from layerscope.errors import BackendError
from layerscope.layers.spec import SIGNATURES, LayerSpec
from layerscope.plugin import (
    API_VERSION,
    BackendSpec,
    BuildContext,
    Requires,
    Switch,
    SwitchKind,
)
from layerscope.regions import Region
from layerscope_torch_compile import toolchain
from layerscope_torch_compile.draft import build_draft
from layerscope_torch_compile.step import BuiltLayer

WHOLE_LAYER: Final = "whole_layer"


def needs_communication(spec: LayerSpec) -> str | None:
    """Why `spec` cannot be measured, if its ranks are real ones; from the name on."""
    if spec.tp == 1 or spec.shard_shaped:
        return None
    return (
        f"has no communication between the {spec.tp} ranks; measure one rank's slice "
        "with --shard-shaped"
    )


def check(spec: LayerSpec, device_type: str) -> list[str]:
    """Every reason against `spec` on a device of a type; see `BackendSpec.check`."""
    reason = needs_communication(spec)
    return [*([reason] if reason else []), *toolchain.missing(device_type)]


def build(context: BuildContext) -> BuiltLayer:
    """Compile the layer of `context.problem`.

    Raises:
        BackendError: it cannot be compiled, or not without a graph break; or its spec
            has real ranks, which need communication.
    """
    reason = needs_communication(context.problem.spec)
    if reason:
        msg = f"torch_compile {reason}"
        raise BackendError(msg)
    whole = context.switches.get(WHOLE_LAYER) == "on"
    return BuiltLayer(context.problem, whole=whole)


BACKEND: Final = BackendSpec(
    name="torch_compile",
    api_version=API_VERSION,
    summary="the layer compiled by torch.compile (inductor), one graph a region",
    covers={
        family: tuple(signature.region for signature in signatures)
        for family, signatures in SIGNATURES.items()
    },
    build=build,
    build_draft=build_draft,
    requires=Requires(device_types=("cpu", "cuda", "hip")),
    check=lambda spec, device: check(spec, device.type),
    switches=(
        Switch(
            name=WHOLE_LAYER,
            values=("off", "on"),
            toggles="compiles the layer as one graph instead of one a region",
            off="off",
            kind=SwitchKind.FUSION,
            of="layer",
        ),
    ),
    skippable=(
        Region.ATTENTION,
        Region.O_PROJ_ALL_REDUCE,
        Region.MOE,
        Region.MLP,
    ),
)
