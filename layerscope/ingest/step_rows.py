"""The kernels of steps found in a trace, as rows of a run."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import polars as pl
from msgspec.structs import replace

from layerscope.experiment import CAPTURED
from layerscope.schema import KERNELS, TRACE_STREAM, conform
from layerscope.study import Arm
from layerscope.trace_spec import STEP, TraceSteps

KINDS: Final = ("decode", "prefill", "mixed", "unknown")
"""Kinds of steps, in the order of arms."""

_KNOWN: Final = ("decode", "prefill", "mixed")
_REPLAY: Final = ("arm", "replay")


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class StepRows:
    """The steps of one trace."""

    kernels: pl.DataFrame
    """`schema.KERNELS`: an arm a device and kind of steps, a replay a step, a pass a
    layer, or the whole step where it has none."""

    steps: tuple[TraceSteps, ...]
    """One an arm, in their order."""

    outside: int
    """Kernels outside of steps, which are not among the rows."""

    outside_ns: int
    """Sum of their durations."""

    renumbered: int
    """Streams that have a new number, as those of several contexts had the same."""


def step_rows(
    placed: pl.DataFrame,
    switches: dict[str, str],
    why_no_gaps: str = "",
    cut: Collection[tuple[int | None, int]] = (),
) -> StepRows:
    """The steps of one trace, arm by arm.

    Args:
        placed: `schema.PLACED_KERNELS`; if none has a step, all are taken as one.
        switches: what the arms are told apart by from those of other traces.
        why_no_gaps: see `trace_trust.Trust`.
        cut: device and step of each that has a layer in part only.
    """
    whole = placed["step"].null_count() == placed.height
    stepped = (
        placed.with_columns(step=pl.lit(0, pl.Int64), step_kind=pl.lit("unknown"))
        if whole
        else placed
    )
    kind = pl.col("step_kind")
    inside = stepped.filter(pl.col("step").is_not_null()).with_columns(
        step_kind=pl.when(kind.is_in(_KNOWN)).then(kind).otherwise(pl.lit("unknown"))
    )
    named, arms = _with_arms(inside, switches)
    streamed, renumbered = _with_streams(named)
    outside = placed.filter(pl.col("step").is_null()) if not whole else placed.clear()
    rank = switches.get("rank")
    steps = (_steps(streamed, arm, rank, cut) for arm in arms)
    return StepRows(
        kernels=_rows(streamed),
        steps=tuple(replace(each, why_no_gaps=why_no_gaps) for each in steps),
        outside=outside.height,
        outside_ns=int(outside["duration_ns"].sum()),
        renumbered=renumbered,
    )


def _with_arms(
    inside: pl.DataFrame, switches: dict[str, str]
) -> tuple[pl.DataFrame, list[str]]:
    """`inside` with the arm of every kernel, and the arms in order."""
    found = inside.select("device", "step_kind").unique()
    rank = pl.col("step_kind").replace_strict({k: i for i, k in enumerate(KINDS)})
    ordered = found.sort(rank, "device", nulls_last=True)
    has_devices = found["device"].n_unique() > 1
    arms = [
        Arm(
            backend=STEP if kind == "unknown" else kind,
            switches=switches | ({"device": str(device)} if has_devices else {}),
        ).name
        for device, kind in ordered.rows()
    ]
    names = ordered.with_columns(arm=pl.Series(arms, dtype=pl.String))
    key = ["device", "step_kind"]
    return inside.join(names, on=key, nulls_equal=True, maintain_order="left"), arms


def _with_streams(kernels: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Streams of several contexts under numbers of their own, where some are equal."""
    whose = kernels.select(TRACE_STREAM).unique()
    shared = whose.filter(pl.len().over("device", "stream") > 1)
    if shared.is_empty():
        return kernels, 0
    numbered = whose.sort(TRACE_STREAM).with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int64).over("device")
    )
    joined = kernels.join(
        numbered, on=TRACE_STREAM, nulls_equal=True, maintain_order="left"
    )
    return joined.with_columns(stream="number"), whose.height


def _rows(kernels: pl.DataFrame) -> pl.DataFrame:
    start = pl.col("start_ns")
    has_layers = pl.col("layer").is_not_null().any().over("arm")
    index = pl.when(has_layers).then(pl.col("layer").fill_null(-1)).otherwise(0)
    begin, pass_begin = pl.col("_begin_ns"), pl.col("_pass_begin_ns")
    rows = (
        kernels.with_columns(replay="step", pass_index=index)
        .sort(*_REPLAY, "start_ns", maintain_order=True)
        .with_columns(
            node=pl.int_range(pl.len(), dtype=pl.Int64).over(_REPLAY),
            _begin_ns=start.min().over(_REPLAY),
            _pass_begin_ns=start.min().over(*_REPLAY, "pass_index"),
        )
        .with_columns(
            experiment=pl.lit(CAPTURED),
            capture=pl.lit(0, pl.Int64),
            round="replay",
            pass_start_ns=pass_begin - begin,
            start_ns=start - pass_begin,
            # a trace tells the sum alone
            static_shared_bytes=pl.lit(None, pl.Int64),
            dynamic_shared_bytes="shared_bytes",
        )
    )
    return conform(rows.select(*KERNELS), KERNELS, what="kernels of the trace")


def _steps(
    kernels: pl.DataFrame,
    arm: str,
    rank: str | None,
    cut: Collection[tuple[int | None, int]],
) -> TraceSteps:
    own = kernels.filter(pl.col("arm") == arm)
    device, steps = own["device"][0], own["step"].unique().sort().to_list()
    cut_steps = [step for step in steps if (device, step) in cut]
    layers = own.select("step", "layer", "variant").unique()
    named = layers.drop_nulls("layer").with_columns(pl.col("variant").fill_null("A"))
    variants = named.group_by("step", "variant").len()
    listed = (
        variants.sort("step", "variant")
        .group_by("step", maintain_order=True)
        .agg(pl.struct("variant", "len").alias("variants"), layers=pl.col("len").sum())
    )
    is_whole = ~pl.col("step").is_in(cut_steps)
    usual = (
        listed.filter(is_whole | ~is_whole.any())
        .group_by("variants", "layers")
        .agg(pl.len(), pl.col("step").min())
        .sort("len", "step", descending=[True, False])
    )
    most = ([], 0) if usual.is_empty() else usual.select("variants", "layers").row(0)
    of_variants, of_all = most
    return TraceSteps(
        arm=arm,
        kind=own["step_kind"][0],
        device=device,
        rank=None if rank is None else int(rank),
        steps=len(steps),
        layers=of_all,
        variants={each["variant"]: each["len"] for each in of_variants},
        layer_variants=_layer_variants(named),
        cut_steps=cut_steps,
    )


def _layer_variants(named: pl.DataFrame) -> dict[str, list[int]]:
    """The steps by the variants of their layers; none where all are of one."""
    if named["variant"].n_unique() <= 1:
        return {}
    listed = named.sort("step", "layer").group_by("step", maintain_order=True)
    place = pl.format("{}:{}", "layer", "variant")
    found = listed.agg(place.str.join(" ").alias("variant"))
    by_list = found.group_by("variant", maintain_order=True).agg("step")
    return dict(by_list.iter_rows())
