"""The skeleton of a layer: its kernels' order, bytes and dependencies, and no more.

What a chain of kernels would cost on this machine if each did nothing but read what it
must and wait for what it needs. No kernel here computes anything, so the times are
limits of every implementation with these kernels; this module says what is read and
waited for, `stage_kernels` does it.

Bytes of a stage are what comes from memory: weights with their block scales and cached
K and V. Activations are handed from kernel to kernel, a few rows that stay in the
cache: they make the order, and are not counted.
"""

from collections.abc import Sequence
from enum import IntFlag, StrEnum
from itertools import accumulate
from typing import Final

import msgspec

from layerscope.layers.families import weight_bytes
from layerscope.layers.spec import LayerSpec
from layerscope.layers.tensors import cached_bytes
from layerscope.regions import Region

THREADS: Final = 256
"""Of a block of every kernel."""

VECTOR_BYTES: Final = 16
"""What a load of a thread reads."""

DEEP: Final = 8
"""Loads that a thread of a kernel that reads much has in flight."""

GRIDS: Final = (2, 4, None)
"""Blocks a multiprocessor at most that are tried; None: a batch of loads a thread.

Few leave room for the kernels that start early behind, many balance better; which is
faster depends on the chain, and a limit is the fastest that was found."""

_ALIGNMENT: Final = 256


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a chain."""

    name: str
    region: str
    bytes: int = 0  # read from memory: weights and cached K and V
    needs_routing: bool = False  # what it reads depends on the experts just chosen


class Variant(StrEnum):
    """How early the kernels of a chain start; the value is what reports call it."""

    NO_PDL = "no PDL"
    """Every kernel starts after the end of the one before."""

    STOCK = "stock PDL"
    """Each waits at its entry and triggers at its end: launches are hidden, no more."""

    LEGAL = "legal early start"
    """Each triggers first and reads before it waits, but for what needs the routing."""

    ALL_EARLY = "all early"
    """Experts too are read before the wait, as if their choice were known before."""

    ONE_READ = "one read"
    """One kernel reads all bytes, a pass after the other."""


class Order(IntFlag):
    """What a kernel does when; nothing set is a plain kernel."""

    READ_FIRST = 1
    """It reads its bytes before it waits, else after."""

    WAIT = 2
    """It waits for the end of the kernel before it, on which it depends."""

    TRIGGER_FIRST = 4
    """It lets the next kernel start at once."""

    TRIGGER_WAITED = 8
    """It lets the next kernel start once it has waited itself."""

    TRIGGER_LAST = 16
    """It lets the next kernel start when it is done."""


_STOCK: Final = Order.WAIT | Order.TRIGGER_LAST
_EARLY: Final = Order.TRIGGER_FIRST | Order.READ_FIRST | Order.WAIT
_ROUTED: Final = Order.WAIT | Order.TRIGGER_WAITED
_PLAIN: Final = Order(0)


def order_of(variant: Variant, stage: Stage) -> Order:
    """What the kernel of `stage` does when, in `variant`.

    A kernel that needs the routing triggers after its wait. The kernels behind it then
    start when the routing is known, so that only the first to read experts must wait
    for it: the second may read early.
    """
    match variant:
        case Variant.NO_PDL | Variant.ONE_READ:
            return _PLAIN
        case Variant.STOCK:
            return _STOCK
        case Variant.LEGAL:
            return _ROUTED if stage.needs_routing else _EARLY
        case Variant.ALL_EARLY:
            return _EARLY


def stages_of(variant: Variant, chain: Sequence[Stage]) -> tuple[Stage, ...]:
    """The kernels of `variant`: those of `chain`, or one that reads what all do."""
    if variant is not Variant.ONE_READ:
        return tuple(chain)
    total = sum(stage.bytes for stage in chain)
    return (Stage(name="read", region=Region.OTHER, bytes=total),)


def is_shallow(stage: Stage, processors: int) -> bool:
    """Whether a block a multiprocessor reads all bytes at one load a thread."""
    return stage.bytes <= processors * THREADS * VECTOR_BYTES


def blocks_of(
    stage: Stage, handed_bytes: int, processors: int, most: int | None
) -> int:
    """Blocks of the kernel of `stage`: one a multiprocessor, or more where they help.

    Args:
        stage: what it reads.
        handed_bytes: activations that it hands on, a vector a thread.
        processors: multiprocessors of the device.
        most: one of `GRIDS`.
    """
    batch = THREADS * VECTOR_BYTES
    needed = -(-stage.bytes // (batch * DEEP))
    if most is not None:
        needed = min(needed, most * processors)
    return max(needed, processors, -(-handed_bytes // batch))


def offsets_of(chain: Sequence[Stage]) -> tuple[tuple[int, ...], int]:
    """Where each stage's bytes begin in those of a pass, and bytes from pass to pass.

    Every stage begins at a whole cache line, so a pass may take up more than it reads.
    """
    sizes = (-(-stage.bytes // _ALIGNMENT) * _ALIGNMENT for stage in chain)
    *starts, total = accumulate(sizes, initial=0)
    return tuple(starts), total


def standard_chain(spec: LayerSpec, distinct_experts: int | None) -> tuple[Stage, ...]:
    """The kernels of a usual serving chain, in order, with the bytes each must read.

    A mixture of experts has 14, a dense layer 10: attention splits the context over
    blocks and combines, experts run as two grouped products over rows aligned by
    expert. The bytes of a region are those of `families.required_bytes`, less the
    activations and the new rows of K and V.

    Args:
        spec: the layer and its workload.
        distinct_experts: distinct experts over all rows of the pass; None if dense.

    Raises:
        ValueError: `distinct_experts` does not fit the family.
    """
    weights = weight_bytes(spec, distinct_experts)
    feed_forward = _dense if distinct_experts is None else _experts
    return (*_attention(spec, weights), *_o_proj(weights), *feed_forward(weights))


def _attention(spec: LayerSpec, weights: dict[str, int]) -> tuple[Stage, ...]:
    head_norms = weights.get("q_norm", 0) + weights.get("k_norm", 0)
    rope = "qk norm + rope" if head_norms else "rope"
    return _region(
        Region.ATTENTION,
        {
            "norm": weights["input_norm"],
            "qkv": weights["qkv"],
            rope: head_norms,
            "attention": cached_bytes(spec),
            "combine": 0,
        },
    )


def _o_proj(weights: dict[str, int]) -> tuple[Stage, ...]:
    read = {"o proj": weights["o"], "norm": weights["post_norm"]}
    return _region(Region.O_PROJ_ALL_REDUCE, read)


def _dense(weights: dict[str, int]) -> tuple[Stage, ...]:
    read = {"gate up": weights["gate_up"], "activation": 0, "down": weights["down"]}
    return _region(Region.MLP, read)


def _experts(weights: dict[str, int]) -> tuple[Stage, ...]:
    before = {"router": weights["router"], "top-k": 0, "align": 0}
    after = {"activation": 0, "down": weights["down"], "sum": 0}
    gate_up = Stage(
        name="gate up",
        region=Region.MOE,
        bytes=weights["gate_up"],
        needs_routing=True,
    )
    return (*_region(Region.MOE, before), gate_up, *_region(Region.MOE, after))


def _region(region: Region, read: dict[str, int]) -> tuple[Stage, ...]:
    return tuple(
        Stage(name=name, region=region, bytes=size) for name, size in read.items()
    )
