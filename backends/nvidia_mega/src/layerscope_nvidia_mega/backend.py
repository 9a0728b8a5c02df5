"""What layerscope is told of this backend."""

from dataclasses import fields, replace
from typing import Final

from layerscope.errors import BackendError
from layerscope.plugin import BuildContext, DraftContext, Switch, SwitchKind
from layerscope_nvidia_mega import (
    draft,
    idle,
    norm_product,
    rope_attention,
    routing,
)
from layerscope_nvidia_mega.layer import make_layer
from layerscope_nvidia_mega.switches import OFF, ON, Mechanisms
from layerscope_standard import limits
from layerscope_standard.backend import BACKEND as STANDARD
from layerscope_standard.backend import ROLES as STANDARD_ROLES
from layerscope_standard.backend import make_workshop
from layerscope_standard.draft import BuiltDraft as StandardDraft
from layerscope_standard.layer import BuiltLayer

NAME: Final = "nvidia_mega"

OWN_ROLES: Final = (norm_product.ROLE, rope_attention.ROLE, routing.ROLE)
ROLES: Final = (*OWN_ROLES, *STANDARD_ROLES)
"""Of the kernels of a layer, whatever is on."""

TOGGLES: Final = {
    "early_trigger": (
        "kernels trigger at entry, gate_up after its wait, instead of at the end"
    ),
    "weight_prefetch": (
        "weights are loaded before the wait, those of down as routing says"
    ),
    "kv_gather": "attention copies what earlier steps have cached before its wait",
    "rope_in_query": (
        "attention norms and rotates its queries and the new keys itself: one kernel "
        "less"
    ),
    "bitmap_routing": (
        "top-k and alignment are one kernel, by a mask of rows for each expert"
    ),
    "early_experts": "gate_up starts while routing ends, which triggers after its wait",
    "norm_in_product": "every block of qkv norms the rows itself: one kernel less",
    "one_launch_draft": (
        "all tokens of a draft are one cooperative launch that keeps w2 on chip"
    ),
}
"""What each mechanism changes."""

STARTS_EARLY: Final = {
    "early_trigger": ("qkv", "attention", "o_proj"),
    "weight_prefetch": ("qkv", "o_proj", "down"),
    "kv_gather": ("attention",),
    "early_experts": ("gate_up",),
}
"""Mechanisms that change when something is done, and nothing else; with the kernels
that therefore do some of it before their predecessor has ended."""

BITWISE: Final = frozenset((*STARTS_EARLY, "bitmap_routing"))
"""Mechanisms that leave every bit as it is."""

OF_DRAFT: Final = "one_launch_draft"
"""The one mechanism of the draft; all others are of the layer."""


def build(context: BuildContext) -> BuiltLayer:
    """Build the layer of `context.problem`.

    Raises:
        BackendError: a kernel cannot be compiled or loaded; or the spec has real
            ranks, which need communication.
    """
    reason = limits.needs_communication(context.problem.spec)
    if reason:
        msg = f"{NAME} {reason}"
        raise BackendError(msg)
    workshop = make_workshop(context.problem.device, "")
    workshop = workshop.stamping(is_wanted=context.stamps)
    return make_layer(context.problem, workshop, Mechanisms.of(context.switches))


def build_draft(context: DraftContext) -> draft.BuiltDraft | StandardDraft:
    """Build the draft of `context.problem`.

    Raises:
        BackendError: the kernel cannot be compiled or loaded.
    """
    problem, device = context.problem, context.problem.device
    workshop = make_workshop(device, "")
    if not Mechanisms.of(context.switches).one_launch_draft:
        return StandardDraft(problem, workshop)
    room = draft.Room.on(device)
    return draft.BuiltDraft(problem, workshop, context.waits, room)


BACKEND: Final = replace(
    STANDARD,  # whose kernels these are, and whose limits
    name=NAME,
    summary="the standard chain with less waiting and fewer kernels",
    build=build,
    build_draft=build_draft,
    switches=tuple(
        Switch(
            name=each.name,
            values=(ON, OFF),
            toggles=TOGGLES[each.name],
            bitwise=each.name in BITWISE,
            kind=SwitchKind.OVERLAP if each.name in STARTS_EARLY else SwitchKind.FUSION,
            starts_early=STARTS_EARLY.get(each.name, ()),
            of="draft" if each.name == OF_DRAFT else "layer",
        )
        for each in fields(Mechanisms)
    ),
    idle=idle.idle,
    waits=(draft.ROLE,),
    pdl_safe=(*OWN_ROLES, *STANDARD.pdl_safe),
)
