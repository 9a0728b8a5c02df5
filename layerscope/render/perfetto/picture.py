"""What a trace shows of the kernels of some replays: slices and counters by track."""

from typing import Final

import polars as pl

from layerscope.analyze.running import running
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.stretches import stretches
from layerscope.analyze.tracks import with_tracks
from layerscope.experiment import CAPTURED
from layerscope.passes import REPLAY_KEYS
from layerscope.render.perfetto.arguments import FLOWS, Arguments
from layerscope.render.perfetto.flows import AFTER, AFTER_PROGRAMMATIC, REPLAY_NUMBER
from layerscope.render.perfetto.slices import Slices
from layerscope.render.perfetto.tracks import Track, Tracks

GRAPH: Final = ("arm", "experiment")
"""The columns that name a graph."""

_REPLAY: Final = {"capture": "capture", "round": "round", "replay": "replay"}

_KERNEL: Final[Arguments] = {
    "kind": "kind",
    "region": "region",
    "role": "role",
    "pass": "pass",
    "node": "node",
    "gap_ns": "gap_ns",
    "hidden_ns": "hidden_ns",
    "grid": {"x": "grid_x", "y": "grid_y", "z": "grid_z"},
    "block": {"x": "block_x", "y": "block_y", "z": "block_z"},
    "registers": "registers",
    "static_shared_bytes": "static_shared_bytes",
    "dynamic_shared_bytes": "dynamic_shared_bytes",
    "stream": "stream",
    "after": AFTER,
    "after_programmatic": AFTER_PROGRAMMATIC,
    **_REPLAY,
}
_GAP: Final[Arguments] = {"region": "region", "pass": "pass", "node": "node", **_REPLAY}
_STRETCH: Final[Arguments] = {
    "pass": "pass",
    "kernels": "kernels",
    "gap_ns": "gap_ns",
    **_REPLAY,
}

_STRETCHES: Final = "passes and regions"
_GAPS: Final = "gaps"
_RUNNING: Final = "kernels running (of those recorded)"
_LEVELS: Final = {
    "sm_clock_mhz": ("SM clock (NVML, median of the rounds of anchors)", "MHz"),
    "power_w": ("power (NVML, median of the rounds of anchors)", "W"),
}
"""Title and unit of what the machine told, by column."""

_RANKS: Final = {
    title: rank
    for rank, title in enumerate(
        (_STRETCHES, _GAPS, _RUNNING, *(title for title, _ in _LEVELS.values()))
    )
}
_STREAM_RANKS: Final = 100  # for the tracks of a stream, below all others


def process_name(arm: str, experiment: str) -> str:
    """What the process of a graph is called."""
    return arm if experiment == CAPTURED else f"{arm} ({experiment})"


def slices(kernels: pl.DataFrame, process: int, tracks: Tracks) -> list[Slices]:
    """Passes, the regions within them, gaps, and kernels of one graph.

    Args:
        kernels: `median_pass.PICTURED` on the clock of the trace, the ``label`` of each
            pass, and the columns of `flows.with_flows`.
        process: the number of the graph's process.
        tracks: takes the tracks that they need.
    """
    index, gap = pl.col("pass_index"), pl.col("gap_ns")
    shown = kernels.with_columns(pl.when(index >= 0).then(index).alias("pass"))
    passes = shown.select(*REPLAY_KEYS, "pass_index", "pass", "label").unique()
    layers = []
    for category, by, name in (
        ("pass", ["pass_index"], "label"),
        ("region", ["pass_index", "region"], "region"),
    ):
        owned = stretches(shown, by).join(passes, on=[*REPLAY_KEYS, "pass_index"])
        track = tracks.track(_track(process, _STRETCHES))
        owned = owned.with_columns(track=_number(track), name=name)
        layers.append(Slices(category, owned, _STRETCH))
    gaps = (
        shown.drop(FLOWS)
        .filter(gap > 0)
        .with_columns(
            track=_number(tracks.track(_track(process, _GAPS))),
            start_ns=pl.col("start_ns") - gap,
            end_ns="start_ns",
            name=pl.format("{}: {}", "region", "name"),
        )
    )
    layers.append(Slices("gap", gaps, _GAP))
    layers.append(Slices("kernel", _on_streams(shown, process, tracks), _KERNEL))
    return layers


def counters(
    kernels: pl.DataFrame, levels: pl.DataFrame, process: int, tracks: Tracks
) -> pl.DataFrame:
    """How many kernels of one graph run, and what the machine told while it was timed.

    Args:
        kernels: as for `slices`.
        levels: those of the graph, from `machine_levels`.
        process: the number of the graph's process.
        tracks: takes the tracks that they need.

    Returns:
        Int64 track, at_ns and value.
    """
    track = tracks.track(_track(process, _RUNNING, "kernels"))
    found = [running(kernels.select("start_ns", "end_ns", track=track), ["track"])]
    ends_ns = kernels.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    for column, (title, unit) in _LEVELS.items():
        values = levels[column].drop_nulls()
        if values.len():
            track = tracks.track(_track(process, title, unit))
            rows = [(track, at_ns, values[0]) for at_ns in ends_ns]
            found.append(pl.DataFrame(rows, schema=found[0].schema, orient="row"))
    return pl.concat(found).rename({"running": "value"})


def machine_levels(samples: pl.DataFrame) -> pl.DataFrame:
    """Clock and power of each graph while it was timed, medians of its anchors.

    They are read once a round, before a profiler is attached: no record has any.

    Args:
        samples: `schema.SAMPLES`.

    Returns:
        `GRAPH`, and Int64 sm_clock_mhz and power_w, null where nothing was read.
    """
    return (
        samples.filter(pl.col("phase") == ANCHOR)
        .group_by(GRAPH)
        .agg(
            pl.col("sm_clock_mhz").median().round().cast(pl.Int64),
            power_w=(pl.col("power_mw") / 1000).median().round().cast(pl.Int64),
        )
    )


def _track(process: int, title: str, unit: str | None = None) -> Track:
    return Track(process, title, _RANKS[title], unit)


def _number(value: int) -> pl.Expr:
    return pl.lit(value, pl.Int64)


def _on_streams(kernels: pl.DataFrame, process: int, tracks: Tracks) -> pl.DataFrame:
    """`kernels` with the number of their stream's track, or of one beside it.

    Kernels that overlap on one stream go to tracks beside each other, times unaltered.
    """
    line = (REPLAY_NUMBER, "stream")
    order = ("start_ns", "end_ns", "node")
    ordered = (
        kernels.select(*line, *order)
        .with_columns(_row=pl.int_range(pl.len(), dtype=pl.Int64))
        .sort(*line, *order)
    )
    busy_until = pl.col("end_ns").cum_max().shift(1).over(line)
    is_free = (pl.col("start_ns") >= busy_until).fill_null(value=True)
    grouped = ordered.with_columns(
        _group=is_free.cum_sum(),  # of kernels that overlap, each with another of them
        _is_alone=is_free & is_free.shift(-1, fill_value=True),
    )
    alone = grouped.filter("_is_alone").with_columns(track=_number(0))
    together = with_tracks(grouped.filter(~pl.col("_is_alone")), ["_group"])
    placed = pl.concat([alone, together])
    rows = placed.select("stream", "track").unique().sort("stream", "track")
    numbers = [tracks.track(_stream_track(process, *row)) for row in rows.rows()]
    numbered = rows.with_columns(number=pl.Series(numbers, dtype=pl.Int64))
    found = placed.join(numbered, on=["stream", "track"], nulls_equal=True).sort("_row")
    return kernels.with_columns(track=found["number"])


def _stream_track(process: int, stream: int | None, beside: int) -> Track:
    name = "no stream" if stream is None else f"stream {stream}"
    rank = (1 if stream is None else stream + 2) * _STREAM_RANKS + beside
    return Track(process, f"{name}, beside {beside}" if beside else name, rank)
