"""From the file of PyTorch's profiler to a `Trace`."""

import re
from dataclasses import replace
from typing import Final

import polars as pl

from layerscope.errors import InputError
from layerscope.ingest.assembling import Rows, assemble, blocks
from layerscope.ingest.content import Content
from layerscope.ingest.formats import Format
from layerscope.ingest.kineto.header import Header, devices_of, header_of
from layerscope.ingest.kineto.selecting import Selection
from layerscope.ingest.kineto.splitting import Splitter
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceLog, TraceSource

_UNIX_NS: Final = 10**18
"""Times above are Unix times (from 2001 on): no machine has been on for so long."""

_CLAMPED_NS: Final = 3_600 * 10**9
"""A start of 0 this long before all work is what a negative one was written as."""

_IN_WORK_ITEMS: Final = "hipExtModuleLaunchKernel"
"""The call whose grid counts work-items; all others count blocks."""

_ASKED: Final = "nccl:"
"""How PyTorch begins the name of a range in which it asks NCCL for something."""

_BY_NCCL: Final = "(?i)nccl|rccl"

_DEVICES: Final = {"mtia": "an MTIA accelerator", "hpu": "a Gaudi accelerator"}
"""How categories begin of devices whose events are others than those of GPUs."""

_WITHIN_KERNEL: Final = re.compile(rb" Core[0-9]+ CTA[0-9]+")
"""In the process of an event: Proton's instrumentation, see Triton's documentation."""


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The work, calls and ranges of one Chrome trace.

    Args:
        content: JSON with a list of events, or several such, or a bare list.
        log: is told what was mended, dropped or doubted.
        progress: is told of the bytes that have been read.

    Raises:
        InputError: it holds no list of events, or those of a device or a tool that
            is not read.
    """
    splitter, selection = Splitter(log), Selection(log)
    for events in splitter.events(content.chunks(log, progress)):
        selection.add(events)
    if not splitter.lists:
        msg = (
            f"{content.name} holds no list of events (traceEvents); give a trace as "
            "PyTorch's profiler exports it"
        )
        raise InputError(msg)
    header = header_of(splitter.outside)
    rows = selection.rows()
    _check_devices(content, selection, rows)
    _note_launches(rows, log)
    rows = Rows(
        kernels=_with_collectives(_with_blocks(rows, log), rows),
        calls=_without_clamped(rows.calls, rows, log),
        ranges=_without_clamped(rows.ranges, rows, log),
    )
    used = rows.kernels["device"].drop_nulls().unique().to_list()
    trace = assemble(
        _source(content, header),
        rows,
        log,
        devices=devices_of(header, used),
        unix_ns=_unix_ns(header, rows),
    )
    return replace(trace, rank=header.rank, ranks=header.ranks)


def _source(content: Content, header: Header) -> TraceSource:
    is_proton = header.unit == "us"  # the profiler of PyTorch writes "ms" or "ns"
    return TraceSource(
        path=content.name,
        format=Format.PROTON if is_proton else Format.KINETO,
        written_by="Triton Proton" if is_proton else header.written_by,
        bytes=content.bytes,
    )


def _check_devices(content: Content, selection: Selection, rows: Rows) -> None:
    """Name what a trace without any work that is known is of."""
    if rows.kernels.height:
        return
    for category, pid in selection.others.items():
        what = next(
            (name for start, name in _DEVICES.items() if category.startswith(start)), ""
        )
        if what:
            msg = (
                f"{content.name} is a trace of {what}, whose work is not read; "
                "give a trace of an NVIDIA or AMD GPU"
            )
            raise InputError(msg)
        if _WITHIN_KERNEL.search(pid):
            msg = (
                f"{content.name} is Proton's trace of what happens within kernels, "
                "which is not read; give one of kernels (without instrumentation)"
            )
            raise InputError(msg)


def _unix_ns(header: Header, rows: Rows) -> int | None:
    """Unix time of the time 0 of the events."""
    if header.base_ns is not None:
        return header.base_ns
    frames = (rows.kernels, rows.calls, rows.ranges)
    starts = [frame["start_ns"].max() for frame in frames]
    latest = max((each for each in starts if isinstance(each, int)), default=0)
    return 0 if latest > _UNIX_NS else None


def _note_launches(rows: Rows, log: TraceLog) -> None:
    """Say how many kernels have no launch: it lies outside the window, or was lost."""
    kernels = rows.kernels.filter(pl.col("kind") == "kernel")
    without = kernels.join(rows.calls, on="correlation", how="anti")
    what = "kernels whose launch is not in the file (cut window, or lost)"
    log.add("doubted", what, without.height, about="launches missing")


def _with_collectives(kernels: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    """Kernels that know their collective from the range in which they were launched.

    A kernel of NCCL that only sends and receives may be an all-to-all or not. Traces
    without parameters of collectives still have ranges such as ``nccl:all_to_all``.
    """
    asked = rows.ranges.filter(pl.col("name").str.starts_with(_ASKED)).select(
        "thread", "start_ns", "end_ns", asked=pl.col("name").str.strip_prefix(_ASKED)
    )
    if asked.is_empty():
        return kernels
    calls = rows.calls.select("correlation", "thread", "start_ns").drop_nulls()
    launched = (
        calls.unique("correlation")
        .sort("start_ns")
        .join_asof(
            asked.drop_nulls().sort("start_ns"),
            on="start_ns",
            by="thread",
            check_sortedness=False,  # it cannot be checked by thread; they are sorted
        )
        .filter(pl.col("start_ns") <= pl.col("end_ns"))
        .select("correlation", "asked")
    )
    told = pl.when(pl.col("name").str.contains(_BY_NCCL)).then("asked")
    return (
        kernels.join(launched, on="correlation", how="left", maintain_order="left")
        .with_columns(collective=pl.coalesce("collective", told))
        .drop("asked")
    )


def _with_blocks(rows: Rows, log: TraceLog) -> pl.DataFrame:
    """Kernels whose grid counts blocks, also where the call counts work-items.

    HIP's module launch takes work-items where its other launches take blocks, and the
    profiler writes down either. Without the call it cannot be told.
    """
    if not rows.calls["name"].str.starts_with("hip").any():
        return rows.kernels
    calls = rows.calls.select("correlation", call="name").unique("correlation")
    kernels = rows.kernels.join(
        calls, on="correlation", how="left", maintain_order="left"
    )
    is_unknown = pl.col("call").is_null() & pl.col("grid_x").is_not_null()
    what = "grids that count blocks or work-items, which cannot be told; left out"
    log.add("doubted", what, kernels.select(is_unknown.sum()).item())
    grids = [
        pl.when(pl.col("call") == _IN_WORK_ITEMS)
        .then(blocks(pl.col(f"grid_{axis}"), pl.col(f"block_{axis}")))
        .when(~is_unknown)
        .then(f"grid_{axis}")
        .alias(f"grid_{axis}")
        for axis in "xyz"
    ]
    return kernels.with_columns(grids).drop("call")


def _without_clamped(frame: pl.DataFrame, rows: Rows, log: TraceLog) -> pl.DataFrame:
    """`frame` without rows whose negative start was written as 0."""
    earliest = rows.kernels["start_ns"].filter(rows.kernels["start_ns"] > 0).min()
    if not isinstance(earliest, int) or earliest < _CLAMPED_NS:
        return frame
    kept = frame.filter(pl.col("start_ns").ne_missing(0))
    what = "calls and ranges that begin before the clock, at times unknown"
    log.add("dropped", what, frame.height - kept.height)
    return kept
