"""The objects in the JSON of rocprofv3, as far as they are needed, and their decoding.

Whatever a record lacks is null, so that records of all versions are read.
"""

import re
from typing import Final, Generic, TypeVar

import msgspec

from layerscope.trace import TraceLog

Record = TypeVar("Record", bound=msgspec.Struct)


class Handle(msgspec.Struct, frozen=True, gc=False):
    """A reference to an agent, a queue or a stream."""

    handle: int | None = None


class Correlation(msgspec.Struct, frozen=True, gc=False):
    """What device work has in common with the call that launched it."""

    internal: int | None = None


class Extent(msgspec.Struct, frozen=True, gc=False):
    """A number a direction."""

    x: int | None = None
    y: int | None = None
    z: int | None = None


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """How a kernel was launched."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int | None = None
    group_segment_size: int | None = None
    workgroup_size: Extent = Extent()
    grid_size: Extent = Extent()  # in work-items


class _Timed(msgspec.Struct, gc=False, kw_only=True):
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    correlation_id: Correlation = Correlation()


class KernelRecord(_Timed, gc=False, kw_only=True):
    """A kernel that ran."""

    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle = Handle()


class CopyRecord(_Timed, gc=False, kw_only=True):
    """A copy that ran."""

    kind: int | None = None
    operation: int | None = None
    src_agent_id: Handle = Handle()
    dst_agent_id: Handle = Handle()
    stream_id: Handle = Handle()


class CallRecord(_Timed, gc=False, kw_only=True):
    """A call of an API, a marker, or (with `key` and `value`) the text of one."""

    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    key: int | None = None
    value: str | None = None


class Memory(msgspec.Struct, frozen=True, gc=False):
    """A part of an agent's memory."""

    heap_type: int = 0  # 1 and 2 are the device's own
    size_in_bytes: int = 0


class Agent(msgspec.Struct, gc=False):
    """A processor."""

    id: Handle = Handle()
    type: int = 0  # 1 is a CPU, 2 a GPU
    logical_node_id: int | None = None
    name: str = ""  # of the architecture
    product_name: str = ""
    cu_count: int = 0
    mem_banks: list[Memory] = []


class KernelSymbol(msgspec.Struct, gc=False):
    """A kernel that was loaded."""

    kernel_id: int | None = None
    kernel_name: str = ""  # as the compiler wrote it
    formatted_kernel_name: str = ""  # as the user asked for it
    demangled_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None


class Kind(msgspec.Struct, gc=False):
    """A kind of records and the names of their operations."""

    kind: str = ""
    operations: list[str] = []


_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_ESCAPE: Final = re.compile(
    rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\)"
)


_FAULTS: Final = (msgspec.DecodeError, RecursionError)  # the latter of deep nesting


class Records(Generic[Record]):
    """Decodes objects into records of one type."""

    def __init__(self, record: type[Record]) -> None:
        """Take what `record` has and leave out all else."""
        self._decoder = msgspec.json.Decoder(record, strict=False)

    def decode(self, text: bytes, log: TraceLog) -> Record | None:
        """The record that `text` is; None if it is none, which is counted."""
        try:
            return self._decoder.decode(text)
        except _FAULTS:
            pass
        valid = text.decode("utf-8", "replace").encode()
        plain = _CONTROL.sub(b" ", valid)
        known = _ESCAPE.sub(lambda found: rb"\\" if found[1] else found[0], plain)
        try:
            record = self._decoder.decode(known)
        except _FAULTS:
            log.add("dropped", "records that are no JSON, or lack their usual form")
            return None
        log.add("repaired", "records with characters or escapes that JSON lacks")
        return record
