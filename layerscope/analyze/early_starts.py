"""How early kernels behind programmatic edges start, and why they do not."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import polars as pl

from layerscope.analyze.occupancy import PROCESSORS, Needs, block_needs, lacking
from layerscope.analyze.shares import kernel_shares
from layerscope.environment import DeviceFacts
from layerscope.passes import PASS_KEYS, REPLAY_KEYS

FEWEST_LEAD_NS: Final = 300
"""Lead below which a kernel did not start early: a trigger at the end of the kernel
before hides a launch, about 0.2 µs, and lets nothing of the two run side by side."""

_LAUNCH: Final = (
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("registers", "static_shared_bytes", "dynamic_shared_bytes"),
)
_BEFORE: Final = "before_"


class Hindrance(StrEnum):
    """Why a kernel behind a programmatic edge did not start early."""

    NONE = ""
    TRIGGER = "trigger late"
    ROOM = "no room"
    NOT_KNOWN = "programmatic but no overlap"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStart:
    """Kernels of one name after kernels of another, joined by a programmatic edge."""

    region: str
    kernel: str
    before: str
    """The kernel that it follows."""

    nodes: float
    """How many a pass."""

    lead_ns: float
    """How long before the end of what ran before it started; median."""

    hindrance: Hindrance
    lacks: tuple[str, ...] = ()
    """What the kernel before leaves too little of."""


def early_starts(
    kernels: pl.DataFrame, programmatic: Collection[int], device: DeviceFacts
) -> tuple[EarlyStart, ...]:
    """Every kind of kernel behind a programmatic edge, in the order of first nodes.

    The lead is the part of a kernel that lies behind the frontier (see
    `shares.kernel_shares`). Where it is too short, there was either no room for a block
    beside those of the kernel before, or there was, and that kernel triggered late;
    where launch shapes or the processor are not known, neither can be told.

    Args:
        kernels: `schema.KERNELS` of one arm's captured graph.
        programmatic: nodes of a replay into which a programmatic edge leads.
        device: what ran them.
    """
    if not programmatic:
        return ()
    told = ("name", *_LAUNCH)
    ordered = kernels.sort(*REPLAY_KEYS, "node").with_columns(
        _line=pl.struct(REPLAY_KEYS).rle_id()
    )
    earlier = [
        pl.col(name).shift(1).over("_line").alias(_BEFORE + name) for name in told
    ]
    swept = kernel_shares(ordered.with_columns(earlier).drop("_line"))
    passes = swept.select(PASS_KEYS).n_unique()
    kinds = ["region", *told, *(_BEFORE + name for name in told)]
    found = (
        swept.filter(
            pl.col("node").is_in(list(programmatic)),
            pl.col(f"{_BEFORE}name").is_not_null(),
        )
        .group_by(kinds)
        .agg(
            lead_ns=(pl.col("duration_ns") - pl.col("exclusive_ns")).median(),
            count=pl.len(),
            node=pl.col("node").min(),
        )
        .sort("node")
    )
    return tuple(
        _early_start(row, passes, device) for row in found.iter_rows(named=True)
    )


def _early_start(row: dict[str, Any], passes: int, device: DeviceFacts) -> EarlyStart:
    starts_early = row["lead_ns"] >= FEWEST_LEAD_NS
    hindrance, lacks = (Hindrance.NONE, ()) if starts_early else _hindrance(row, device)
    return EarlyStart(
        region=row["region"],
        kernel=row["name"],
        before=row[f"{_BEFORE}name"],
        nodes=row["count"] / passes,
        lead_ns=row["lead_ns"],
        hindrance=hindrance,
        lacks=lacks,
    )


def _hindrance(
    row: dict[str, Any], device: DeviceFacts
) -> tuple[Hindrance, tuple[str, ...]]:
    processor = PROCESSORS.get(device.architecture)
    after, before = _needs(row, ""), _needs(row, _BEFORE)
    if processor is None or after is None or before is None:
        return Hindrance.NOT_KNOWN, ()
    blocks = row[f"{_BEFORE}grid_x"] * row[f"{_BEFORE}grid_y"] * row[f"{_BEFORE}grid_z"]
    lacks = lacking(before, blocks, after, processor, device.processors)
    return (Hindrance.ROOM, lacks) if lacks else (Hindrance.TRIGGER, ())


def _needs(row: dict[str, Any], prefix: str) -> Needs | None:
    """What a block of a kernel holds; None where its launch was not recorded."""
    launch = [row[prefix + name] for name in _LAUNCH]
    if None in launch:
        return None
    _, _, _, x, y, z, registers, static_bytes, dynamic_bytes = launch
    return block_needs(x * y * z, registers, static_bytes + dynamic_bytes)
