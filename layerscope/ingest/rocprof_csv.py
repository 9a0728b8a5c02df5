"""Reads the CSV files of rocprofv3: kernels, copies, calls and markers of one process.

Headers of all ages are known: without streams and with numbers for agents (2024), with
both (2025), and those that rocpd writes when it converts its databases. Times are those
of the device, as it gave them; the clock counts from the start of the machine.
"""

from typing import Final

from layerscope.errors import InputError
from layerscope.ingest.assembling import assemble
from layerscope.ingest.columns import Names
from layerscope.ingest.content import Content
from layerscope.ingest.csv_rows import header_names
from layerscope.ingest.formats import Format
from layerscope.ingest.rocprof_csv_agents import agents_of, devices_in
from layerscope.ingest.rocprof_csv_set import Part, part_of, siblings
from layerscope.ingest.rocprof_csv_tables import (
    TIMED,
    of_one_recording,
    rows_of,
    table_of,
)
from layerscope.progress import Progress, SilentProgress
from layerscope.trace import Trace, TraceLog, TraceSource

_REFUSED: Final = {
    Part.COUNTERS: "holds hardware counters, and collecting those slows kernels down; "
    "record with rocprofv3 --kernel-trace, and give its kernel_trace.csv",
    Part.SUMMARY: "holds sums of a profile and no single kernel; give the "
    "kernel_trace.csv beside it",
    Part.AGENTS: "describes devices only; give the kernel_trace.csv beside it",
    Part.MEMORY: "holds allocations of memory; give the kernel_trace.csv beside it",
    Part.OTHER: "is no CSV of rocprofv3: its first line names no known columns; give "
    "a kernel_trace.csv",
}


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The trace of the process that `content` is of, and of the files beside it.

    Any file of a process's set may be given. Context is the queue of HSA, stream the
    stream of HIP (the queue where the file has no streams), registers those for vectors
    and accumulators together; extents of launches are given in blocks.

    Raises:
        InputError: neither the file nor those of its prefix hold anything in time.
    """
    names = Names(log)
    given = part_of(content)
    beside = sorted(siblings(content, log), key=lambda each: part_of(each) != "kernels")
    tables = [table_of(content, names, log, progress)] if given in TIMED else []
    tables += [
        table_of(other, names, log, SilentProgress())
        for other in beside
        if part_of(other) in TIMED
    ]
    if not tables:
        msg = f"{content.name} {_REFUSED[given]}"
        raise InputError(msg)
    rows = rows_of(of_one_recording(tables, log), names, log)
    agents = [each for each in (content, *beside) if part_of(each) is Part.AGENTS]
    devices = agents_of(agents[0], devices_in(rows), log) if agents else ()
    is_converted = "guid" in header_names(content.head)
    source = TraceSource(
        path=content.name,
        format=Format.ROCPROF_CSV,
        written_by="rocprofv3, converted by rocpd" if is_converted else "rocprofv3",
        bytes=content.bytes,
    )
    return assemble(source, rows, log, devices=devices)
