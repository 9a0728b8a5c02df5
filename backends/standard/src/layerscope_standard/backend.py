"""What layerscope is told of this backend."""

from typing import Final

import torch

from layerscope.errors import BackendError
from layerscope.layers.spec import SIGNATURES, DType, LayerSpec
from layerscope.plugin import (
    API_VERSION,
    BackendSpec,
    BuildContext,
    DeviceFacts,
    DraftContext,
    Requires,
    Switch,
    SwitchKind,
)
from layerscope.regions import Region
from layerscope_standard import limits, selection
from layerscope_standard.compiling import ARCHITECTURES
from layerscope_standard.draft import BuiltDraft
from layerscope_standard.launching import CudaLauncher
from layerscope_standard.layer import BuiltLayer, make_layer
from layerscope_standard.workshop import Workshop

PDL: Final = "pdl"

ROLES: Final = (
    *("norm", "qkv", "rope_kv_write", "attention", "combine"),
    *("o_proj", "post_norm"),
    *("router", "top_k", "align", "gate_up", "down+sum"),
)
"""Of the kernels of a layer, in the order of execution."""

DRAFT_ROLES: Final = tuple(f"token_{number}" for number in range(1, 17))
"""Of the kernels of a draft of up to 16 tokens."""


def check(spec: LayerSpec, device: DeviceFacts) -> list[str]:
    """Every reason against `spec` on `device`; see `BackendSpec.check`."""
    reason = limits.needs_communication(spec)
    return [
        *([reason] if reason else []),
        *limits.missing_packages(),
        *selection.committed().missing_packages,
        *limits.shapes(spec),
        *limits.shared_memory(spec, device),
    ]


def build(context: BuildContext) -> BuiltLayer:
    """Build the layer of `context.problem`.

    Raises:
        BackendError: a kernel cannot be compiled or loaded; or the spec has real
            ranks, which need communication.
    """
    reason = limits.needs_communication(context.problem.spec)
    if reason:
        msg = f"standard {reason}"
        raise BackendError(msg)
    workshop = make_workshop(context.problem.device, context.switches.get(PDL, ""))
    return make_layer(context.problem, workshop.stamping(is_wanted=context.stamps))


def build_draft(context: DraftContext) -> BuiltDraft:
    """Build the draft of `context.problem`.

    Raises:
        BackendError: the kernel cannot be compiled or loaded.
    """
    workshop = make_workshop(context.problem.device, context.switches.get(PDL, ""))
    return BuiltDraft(context.problem, workshop)


def make_workshop(device: torch.device, pdl: str) -> Workshop:
    """What layers on `device` are made with; `pdl` is the value of the switch."""
    properties = torch.cuda.get_device_properties(device)
    return Workshop(
        launcher=CudaLauncher(device, programmatic=pdl != "off"),
        device=device,
        processors=properties.multi_processor_count,
        selection=selection.committed(),
    )


BACKEND: Final = BackendSpec(
    name="standard",
    api_version=API_VERSION,
    summary="the chain of kernels a good server runs, with stock programmatic launch",
    covers={
        family: tuple(signature.region for signature in signatures)
        for family, signatures in SIGNATURES.items()
    },
    build=build,
    build_draft=build_draft,
    requires=Requires(
        device_types=("cuda",),
        architectures=tuple(ARCHITECTURES),
        dtypes=(DType.BFLOAT16,),
        weight_dtypes=(DType.BFLOAT16, DType.FLOAT8_E4M3),
    ),
    check=check,
    declines=limits.declines,
    stamps=True,
    switches=(
        Switch(
            name=PDL,
            values=("stock", "off"),
            toggles=(
                "launches every kernel with the programmatic attribute; all wait at "
                "entry and trigger at the end"
            ),
            bitwise=True,
            off="off",
            kind=SwitchKind.OVERLAP,
            starts_early=("qkv",),
        ),
    ),
    skippable=(
        Region.ATTENTION,
        Region.O_PROJ_ALL_REDUCE,
        Region.MOE,
        Region.MLP,
    ),
    # A library's kernel does not wait by itself.
    pdl_safe=tuple(
        role
        for role in (*ROLES, *DRAFT_ROLES)
        if role not in selection.committed().foreign_roles
    ),
)
