"""Reads the JSON of rocprofv3, object by object, whatever its size.

A process is an object of metadata, agents, names and lists of records; a file may hold
several. Records are not in the order of time. Times are those of the device, as it gave
them; the clock counts from the start of the machine.
"""

from collections.abc import Callable
from typing import Any, Final

from layerscope.errors import InputError
from layerscope.ingest.assembling import assemble
from layerscope.ingest.columns import Names
from layerscope.ingest.content import Content
from layerscope.ingest.formats import Format
from layerscope.ingest.json_lists import JsonLists
from layerscope.ingest.rocprof_process import Process, rows_of
from layerscope.ingest.rocprof_records import (
    Agent,
    CallRecord,
    CopyRecord,
    KernelRecord,
    KernelSymbol,
    Kind,
    Records,
)
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceDevice, TraceLog, TraceSource

_LISTS: Final[dict[str, tuple[Records[Any], Callable[[Process, Any], None]]]] = {
    "agents": (Records(Agent), Process.add_agent),
    "kernel_symbols": (Records(KernelSymbol), Process.add_symbol),
    "buffer_records": (Records(Kind), Process.add_kind),  # the list of that name
    "kernel_dispatch": (Records(KernelRecord), Process.add_kernel),
    "memory_copy": (Records(CopyRecord), Process.add_copy),
    "hip_api": (Records(CallRecord), Process.add_call),
    "hsa_api": (Records(CallRecord), Process.add_call),
    "marker_api": (Records(CallRecord), Process.add_call),  # of texts, and of records
}
_PID: Final = "pid"
_ONCE: Final = frozenset({_PID, "agents", "kernel_symbols", "kernel_dispatch"})
"""What a process has once: where it comes again, the next process has begun."""

_MOST_PROCESSES: Final = 512


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The trace in a JSON file of rocprofv3.

    Devices are numbered as in its CSV files. Context is the queue of HSA, stream the
    stream of HIP (the queue in files without streams), registers those for vectors and
    accumulators together; extents of launches are given in blocks.

    Raises:
        InputError: the file holds none of the lists of such a file.
    """
    names = Names(log)
    processes = [Process(names)]
    lists = JsonLists(_LISTS, [_PID], log)
    for key, text in lists.read(content.chunks(log, progress)):
        if not text or key == _PID:
            is_next = key in _ONCE and key in processes[-1].lists
            if is_next and len(processes) < _MOST_PROCESSES:
                processes.append(Process(names))
            processes[-1].lists.add(key)
        if key == _PID:
            processes[-1].pid = int(text)
        elif text:
            records, add = _LISTS[key]
            if (record := records.decode(text, log)) is not None:
                add(processes[-1], record)
    if not any(process.lists - {_PID} for process in processes):
        msg = f"{content.name} holds no records of rocprofv3; give another file"
        raise InputError(msg)
    source = TraceSource(
        path=content.name,
        format=Format.ROCPROF_JSON,
        written_by="rocprofv3",
        bytes=content.bytes,
    )
    return assemble(source, rows_of(processes), log, devices=_devices(processes))


def _devices(processes: list[Process]) -> tuple[TraceDevice, ...]:
    """The GPUs of all `processes`, each once."""
    every = [device for process in processes for device in process.devices()]
    return tuple({device.device: device for device in every}.values())
