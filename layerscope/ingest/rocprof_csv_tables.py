"""The rows of rocprofv3's CSV files, made numbers, and then rows of a trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.ingest.assembling import Rows, blocks, call_rows
from layerscope.ingest.columns import Names
from layerscope.ingest.content import Content
from layerscope.ingest.csv_rows import csv_frames
from layerscope.ingest.rocprof_csv_set import Part, part_of
from layerscope.progress import Progress
from layerscope.schema import INT
from layerscope.trace import TraceLog

TIMED: Final = {
    Part.KERNELS: "kernel_name",
    Part.COPIES: "direction",
    Part.CALLS: "function",
}
"""Files whose rows are spans of time, and the column that names these."""

_SAME_RECORDING_NS: Final = 600 * 10**9
"""Files of one prefix whose times lie further apart are of different recordings."""

_AXES: Final = ("x", "y", "z")
_API_OF_MARKERS: Final = r"^roctx[A-Z]\w*$"  # their names, where no message is known
_COLUMNS: Final = (
    *("guid", "domain", "start_timestamp", "end_timestamp", "correlation_id"),
    *("agent_id", "source_agent_id", "destination_agent_id"),
    *("process_id", "thread_id", "queue_id", "stream_id"),
    *("lds_block_size", "group_segment_size", "vgpr_count", "accum_vgpr_count"),
    *(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in _AXES),
)
"""What some age of some file has, beside names."""


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Table:
    """The rows of one file."""

    part: Part

    rows: pl.DataFrame
    """What `Rows` takes, with the number of the GUID as process and those of names.
    Calls also have ``_domain`` and ``_process``."""


def table_of(
    content: Content, names: Names, log: TraceLog, progress: Progress
) -> Table:
    """The rows of one of the files in `TIMED`, piece by piece."""
    part = part_of(content)
    select = _SELECTED[part]
    pieces = []
    for text in csv_frames(content.chunks(log, progress), log):
        lacking = [name for name in _COLUMNS if name not in text.columns]
        whole = text.with_columns(
            *(pl.lit(None, pl.String).alias(name) for name in lacking),
            names.numbers(text[TIMED[part]]).alias("name"),
        )
        whole = whole.with_columns(names.numbers(whole["guid"]))
        pieces.append(whole.select(*select("stream_id" not in lacking)))
    return Table(part, pl.concat(pieces))


def of_one_recording(tables: Sequence[Table], log: TraceLog) -> list[Table]:
    """`tables` whose times are near those of the first.

    Files are often copied together under the names that rocprofv3 gives by default.
    """
    first, *others = tables
    span = _span(first)
    kept = [
        other
        for other in others
        if span is None
        or (own := _span(other)) is None
        or max(own[0] - span[1], span[0] - own[1]) < _SAME_RECORDING_NS
    ]
    log.add(
        "dropped",
        "files of the same prefix from another recording",
        len(others) - len(kept),
    )
    return [first, *kept]


def rows_of(tables: Sequence[Table], names: Names, log: TraceLog) -> Rows:
    """All of `tables` as rows of a trace."""
    processes = _processes(tables)
    frames: dict[Part, list[pl.DataFrame]] = {part: [] for part in TIMED}
    for table in tables:
        texts = names.kernels if table.part is Part.KERNELS else names.texts
        frames[table.part].append(
            table.rows.with_columns(
                texts(table.rows["name"]),
                pl.col("process").replace_strict(
                    processes, default=None, return_dtype=INT
                ),
            )
        )
    of_devices = [*frames[Part.KERNELS], *frames[Part.COPIES]]
    kernels = pl.concat(of_devices, how="diagonal") if of_devices else Rows().kernels
    if not frames[Part.CALLS]:
        return Rows(kernels)
    every = pl.concat(frames[Part.CALLS])
    told = every["_process"].n_unique()
    if told > 1 and not processes:
        log.add("doubted", "processes in one file, whose kernels say none", told)
    domain = pl.col("_domain")
    marks = every.filter(
        domain.str.starts_with("MARKER")
        & (pl.col("end_ns") > pl.col("start_ns"))  # a mark without length is no range
        & ~pl.col("name").str.contains(_API_OF_MARKERS)
    )
    calls = every.filter(domain.str.contains("^(HIP|HSA)")).with_columns(
        is_hsa=domain.str.starts_with("HSA")
    )
    return Rows(
        kernels,
        call_rows(calls.drop("_domain", "_process"), kernels),
        marks.drop("_domain", "_process", "correlation").with_columns(
            kind=pl.lit("annotation")
        ),
    )


def _span(table: Table) -> tuple[int, int] | None:
    starts = table.rows["start_ns"]
    first, last = starts.filter(starts > 0).min(), starts.max()
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    return first, last


def _processes(tables: Sequence[Table]) -> dict[int, int]:
    """Processes by the number of their GUID; none where there is but one."""
    every = pl.concat([table.rows["process"] for table in tables])
    distinct = every.drop_nulls().unique(maintain_order=True).to_list()
    places = dict(zip(distinct, range(len(distinct)), strict=True))
    return places if len(places) > 1 else {}


def _timed() -> Iterator[pl.Expr]:
    yield pl.col("name")
    yield pl.col("guid").alias("process")
    yield number("start_timestamp").alias("start_ns")
    yield number("end_timestamp").alias("end_ns")
    yield number("correlation_id").alias("correlation")


def _kernels(has_streams: bool) -> Iterator[pl.Expr]:  # noqa: FBT001 (called by table)
    yield from _timed()
    yield pl.lit("kernel").alias("kind")
    yield _agent("agent_id").alias("device")
    yield number("queue_id").alias("context")
    yield number("stream_id" if has_streams else "queue_id").alias("stream")
    for axis in _AXES:
        items, block = number(f"grid_size_{axis}"), number(f"workgroup_size_{axis}")
        yield blocks(items, block).alias(f"grid_{axis}")
        yield block.alias(f"block_{axis}")
    vectors, others = number("vgpr_count"), number("accum_vgpr_count")
    yield (vectors + others.fill_null(0)).alias("registers")
    shared = pl.coalesce(number("lds_block_size"), number("group_segment_size"))
    yield shared.alias("shared_bytes")


def _copies(has_streams: bool) -> Iterator[pl.Expr]:  # noqa: ARG001, FBT001 (see above)
    yield from _timed()
    yield pl.lit("copy").alias("kind")
    source, target = _agent("source_agent_id"), _agent("destination_agent_id")
    is_from = pl.col("direction").str.contains("DEVICE_TO_HOST")
    yield pl.when(is_from).then(source).otherwise(target).alias("device")
    yield number("stream_id").alias("stream")


def _calls(has_streams: bool) -> Iterator[pl.Expr]:  # noqa: ARG001, FBT001 (see above)
    yield from _timed()
    yield number("thread_id").alias("thread")
    yield pl.col("domain").str.to_uppercase().alias("_domain")
    yield number("process_id").alias("_process")


_SELECTED: Final = {Part.KERNELS: _kernels, Part.COPIES: _copies, Part.CALLS: _calls}


def number(column: str) -> pl.Expr:
    """The whole number in a column of text, or null."""
    return pl.col(column).str.strip_chars().cast(INT, strict=False)


def _agent(column: str) -> pl.Expr:
    """The number in ``4``, ``Agent 4`` or ``GPU 0``."""
    return pl.col(column).str.extract(r"(\d+)\s*$").cast(INT, strict=False)
