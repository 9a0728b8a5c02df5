"""What every reader does last: rows that cannot be right are mended, cut or dropped.

Times are taken as the file gives them, before a reader shifts them to its time 0, since
a time of exactly 0 tells of a record that was never filled in. Everything that is done
here is counted in the log.
"""

from typing import Final

import polars as pl

from layerscope.schema import LAUNCH_KEYS, TRACE_STREAM
from layerscope.trace import TraceLog
from layerscope.trace_names import COLLECTIVE

LONGEST_NS: Final = 86_400 * 10**9
"""A day. Longer work is a damaged number, and a few of them would overflow sums."""

LATEST_NS: Final = 1 << 62
"""No clock reads this (the year 2116 as Unix time), nor this much below 0."""

ABSURD_RATIO: Final = 100
"""How many times its kernel's usual duration makes one that overruns others absurd."""

OVERRUN_NS: Final = 1_000_000
"""By how much such a kernel reaches into what follows on its stream, at least."""

SURELY_ABSURD_RATIO: Final = 1_000
SURELY_ABSURD_NS: Final = 1_000_000_000
"""Both are exceeded where there is less evidence: if nothing follows on the stream, or
if it was launched with others, as kernels of a graph are: tools put its branches on one
stream, where a long one reaches into what runs beside it."""

_START, _DURATION = pl.col("start_ns"), pl.col("duration_ns")
_WAITS: Final = pl.col("name").str.contains(COLLECTIVE) | (
    pl.col("collective").is_not_null()
)
_HAS_TIME: Final = pl.all_horizontal(_START.is_not_null(), _DURATION.is_not_null())


def clean_kernels(kernels: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """`kernels` without what cannot be right, sorted by start, end and file order.

    Dropped are rows without times or with impossible ones, records never filled in
    (start 0 and duration 0, where other starts are not 0), and repeated rows. Negative
    durations become 0. A duration that overflowed, known from ROCm (AMD-AGI/TraceLens
    issue 669, 1.6 s), is cut: one that is over `ABSURD_RATIO` times the lower median of
    its name, or of its stream where its name occurs once, and reaches `OVERRUN_NS` into
    what follows on its stream, becomes that median or ends where the next one starts,
    whichever is shorter. Kernels that were launched with others, and the last of a
    stream, have to exceed `SURELY_ABSURD_RATIO` and `SURELY_ABSURD_NS`. Kernels that
    may wait for other ranks are left as they are, and counted where they exceed both.

    Args:
        kernels: columns of `schema.TRACE_KERNELS`, rows in the order of the file, times
            in ns as the file gives them.
        log: is told of all that was done.
    """
    kept = _with_possible_times(kernels, log, "kernels")
    kept = _with_names(kept, log, "kernels")
    kept = _kept(kept, ~_is_unfilled(), log, "kernels whose times were never filled in")
    log.add(
        "doubted",
        "kernels of negative duration, taken as 0",
        kept.select((_DURATION < 0).sum()).item(),
    )
    kept = kept.with_columns(_DURATION.clip(0))
    kept = _without_repeats(kept, log, "kernels that are there twice")
    return _cut(kept, log).sort("start_ns", "duration_ns", maintain_order=True)


def clean_calls(calls: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """`calls` with possible times and no repeats, sorted by start and file order.

    Args:
        calls: columns of `schema.TRACE_CALLS`, in the order of the file.
        log: is told of all that was done.
    """
    kept = _with_possible_times(calls, log, "calls")
    kept = _with_names(kept, log, "calls").with_columns(_DURATION.clip(0))
    kept = _without_repeats(kept, log, "calls that are there twice")
    return kept.sort("start_ns", maintain_order=True)


def clean_ranges(ranges: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """`ranges` with possible times, sorted by start, the longer first.

    Args:
        ranges: columns of `schema.TRACE_RANGES`, in the order of the file.
        log: is told of all that was done.
    """
    start, end = _START, pl.col("end_ns")
    is_possible = (
        start.is_between(-LATEST_NS, LATEST_NS, closed="none")
        & end.is_between(-LATEST_NS, LATEST_NS, closed="none")
        & (end >= start)
    ).fill_null(value=False)
    kept = _kept(ranges, is_possible, log, "ranges whose times are missing or wrong")
    kept = _with_names(kept, log, "ranges")
    return kept.sort(
        "start_ns", "end_ns", descending=[False, True], maintain_order=True
    )


def _kept(
    frame: pl.DataFrame, condition: pl.Expr, log: TraceLog, what: str
) -> pl.DataFrame:
    kept = frame.filter(condition)
    log.add("dropped", what, frame.height - kept.height)
    return kept


def _with_possible_times(frame: pl.DataFrame, log: TraceLog, what: str) -> pl.DataFrame:
    timed = _kept(frame, _HAS_TIME, log, f"{what} without times")
    is_possible = (
        _START.is_between(-LATEST_NS, LATEST_NS, closed="none")
        & (_DURATION > -LATEST_NS)
        & (_DURATION < LONGEST_NS)
    )
    return _kept(timed, is_possible, log, f"{what} at impossible times")


def _with_names(frame: pl.DataFrame, log: TraceLog, what: str) -> pl.DataFrame:
    log.add("repaired", f"{what} without a name", frame["name"].null_count())
    return frame.with_columns(pl.col("name").fill_null("(no name)"))


def _without_repeats(frame: pl.DataFrame, log: TraceLog, what: str) -> pl.DataFrame:
    # Kernels of no duration may be as equal as this, where a tool cuts times to 1 µs.
    suspects = (
        frame.with_row_index("_row")
        .filter(pl.struct("start_ns", "duration_ns").is_duplicated())
        .filter(_DURATION > 0)
    )
    if suspects.is_empty():
        return frame
    is_repeat = ~pl.struct(pl.all().exclude("_row")).is_first_distinct()
    repeats = suspects.filter(is_repeat)["_row"]
    is_kept = ~pl.int_range(pl.len(), dtype=pl.UInt32).is_in(repeats.implode())
    return _kept(frame, is_kept, log, what)


def _is_unfilled() -> pl.Expr:
    return (_START == 0) & (_DURATION == 0) & (_START != 0).any()


def _cut(kernels: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """`kernels` with durations that overflowed cut; files without any are usual."""
    if not kernels.select((_DURATION > OVERRUN_NS).any()).item():
        return kernels
    order = (
        kernels.select(
            *TRACE_STREAM,
            *("start_ns", "duration_ns", "name", "collective", "correlation", "graph"),
        )
        .with_row_index("_row")
        .sort(*TRACE_STREAM, "start_ns", "duration_ns")
    )
    is_last = pl.struct(TRACE_STREAM) != pl.struct(TRACE_STREAM).shift(-1)
    placed = order.with_columns(
        _next=pl.when(~is_last.fill_null(value=True)).then(_START.shift(-1))
    )
    overrun = _START + _DURATION - pl.col("_next")
    suspects = placed.filter(
        pl.when(pl.col("_next").is_null())
        .then(~_WAITS & (_DURATION > SURELY_ABSURD_NS))
        .otherwise(overrun > OVERRUN_NS)
    )
    if suspects.is_empty():
        return kernels
    absurd = _absurd(suspects, kernels)
    cut = absurd.filter(~pl.col("_waits")).drop("_waits")
    log.add(
        "doubted",
        "collectives of absurd duration, left as they are: they may have waited",
        absurd.height - cut.height,
    )
    log.add(
        "doubted",
        "kernels of absurd duration, cut to what is usual or fits",
        cut.height,
    )
    return (
        kernels.with_row_index("_row")
        .join(cut, on="_row", how="left", maintain_order="left")
        .with_columns(duration_ns=pl.coalesce("_cut_ns", "duration_ns"))
        .drop("_row", "_cut_ns")
    )


def _absurd(suspects: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Columns ``_row``, ``_cut_ns``, ``_waits`` of those suspects that are absurd."""
    lower_median = _DURATION.quantile(0.5, "lower").cast(pl.Int64)
    by_name = kernels.group_by("name").agg(_usual=lower_median, _times=pl.len())
    by_line = kernels.group_by(*TRACE_STREAM).agg(_usual_of_line=lower_median)
    by_launch = kernels.group_by(*LAUNCH_KEYS).agg(_together=pl.len())
    usual = pl.when(pl.col("_times") > 1).then("_usual")
    limit = pl.col("_next") - _START
    is_of_graph = pl.col("graph").is_not_null() | (
        pl.col("correlation").is_not_null() & (pl.col("_together") > 1)
    )
    is_doubtful = pl.col("_next").is_null() | _WAITS | is_of_graph
    ratio = pl.when(is_doubtful).then(SURELY_ABSURD_RATIO).otherwise(ABSURD_RATIO)
    return (
        suspects.join(by_name, on="name", how="left")
        .join(by_line, on=TRACE_STREAM, how="left", nulls_equal=True)
        .join(by_launch, on=LAUNCH_KEYS, how="left", nulls_equal=True)
        .with_columns(_usual=usual)
        .with_columns(_beside=pl.coalesce("_usual", "_usual_of_line"))
        .filter(
            ratio * pl.col("_beside") < _DURATION,
            ~is_doubtful | (_DURATION > SURELY_ABSURD_NS),
        )
        .select(
            "_row",
            _cut_ns=pl.min_horizontal("_usual", limit, _DURATION),
            _waits=_WAITS,
        )
    )
