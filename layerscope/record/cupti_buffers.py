"""CUPTI's activity buffers, copied out whole and parsed as arrays.

cupti-python builds a Python object of every record, about 90 µs each. Here CUPTI's own
functions fill buffers of ours, and only the layouts of records come from cupti-python.
"""

import ctypes
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from cupti import cupti

from layerscope.errors import MeasurementError

Records: TypeAlias = np.ndarray[Any, np.dtype[np.void]]
"""Records of one kind, in `layout` of that kind."""

_BUFFER_BYTES: Final = 8 * 1024 * 1024
_FORCED: Final = 1
_SUCCESS: Final = 0
_END: Final = -1

_Requested: Final = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),  # buffer
    ctypes.POINTER(ctypes.c_size_t),  # its size
    ctypes.POINTER(ctypes.c_size_t),  # most records it may hold; 0 is as many as fit
)
_Completed: Final = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,  # context
    ctypes.c_uint32,  # stream
    ctypes.c_void_p,  # buffer
    ctypes.c_size_t,  # its size
    ctypes.c_size_t,  # bytes that hold records
)

_LAYOUTS: Final = {
    int(cupti.ActivityKind.CONCURRENT_KERNEL): "activity_kernel",
    int(cupti.ActivityKind.MEMCPY): "activity_memcpy",
    int(cupti.ActivityKind.MEMSET): "activity_memset",
}
KINDS: Final = tuple(_LAYOUTS)
"""The activity kinds that can be read."""


_KEPT: Final[list["Buffers"]] = []
"""Whoever was registered: CUPTI may call these for as long as the process lives."""


class Buffers:
    """Collects records of the three kinds from when it is registered."""

    def __init__(self) -> None:
        self._lent: dict[int, Any] = {}
        self._filled: list[bytes] = []
        self._callbacks = (_Requested(self._request), _Completed(self._complete))

    def attach(self) -> None:
        """Have CUPTI record the three kinds into these buffers from now on.

        Raises:
            MeasurementError: CUPTI refuses.
        """
        _KEPT.append(self)
        _call("cuptiActivityRegisterCallbacks", *self._callbacks)
        try:
            for kind in KINDS:
                _call("cuptiActivityEnable", ctypes.c_uint32(kind))
        except MeasurementError:
            self.detach()
            raise

    def flush(self) -> None:
        """Take over everything that was recorded until now.

        Raises:
            MeasurementError: CUPTI refuses.
        """
        _call("cuptiActivityFlushAll", ctypes.c_uint32(_FORCED))

    def detach(self) -> None:
        """Record no longer, and leave nothing of CUPTI in the process.

        What CUPTI says of it changes nothing: there is no other way to let it go.
        """
        for kind in KINDS:
            _library().cuptiActivityDisable(ctypes.c_uint32(kind))
        _library().cuptiFinalize()

    def take(self) -> dict[int, Records]:
        """The records since the last call, by kind, each in the layout of its kind.

        Raises:
            MeasurementError: CUPTI's records are shorter than these layouts, which are
                then those of another version.
        """
        filled, self._filled = self._filled, []
        raw: dict[int, list[bytes]] = {kind: [] for kind in KINDS}
        for buffer in filled:
            records = [*_walk(buffer), (_END, len(buffer))]
            for (kind, start), (_, end) in pairwise(records):
                if kind not in raw:
                    continue
                size = layout(kind).itemsize
                if end - start < size:
                    raise MeasurementError(_unlike(end - start, size))
                raw[kind].append(buffer[start : start + size])
        return {
            kind: np.frombuffer(b"".join(records), dtype=layout(kind))
            for kind, records in raw.items()
        }

    def _request(self, buffer: Any, size: Any, most: Any) -> None:  # noqa: ANN401
        memory = ctypes.create_string_buffer(_BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _complete(self, _: int, __: int, buffer: int, ___: int, valid: int) -> None:
        self._filled.append(ctypes.string_at(buffer, valid))
        del self._lent[buffer]


def _unlike(found: int, expected: int) -> str:
    return (
        f"CUPTI's records have {found} bytes where cupti-python expects {expected}: "
        "the two packages are of different versions; install the pair that "
        "constraints.txt names, or take --recorder torch.profiler"
    )


@cache
def layout(kind: int) -> np.dtype[np.void]:
    """Field layout of a kind's records, as cupti-python publishes it for its CUPTI."""
    prefix = _LAYOUTS[kind]
    versions = {
        int(name.removeprefix(prefix).removesuffix("_dtype")): name
        for name in dir(cupti)
        if name.startswith(prefix)
        and name.removeprefix(prefix).removesuffix("_dtype").isdigit()
    }
    found: np.dtype[np.void] = getattr(cupti, versions[max(versions)])
    return found


def _walk(buffer: bytes) -> list[tuple[int, int]]:
    """Kind and start of every record in `buffer`, as CUPTI steps through it."""
    memory = ctypes.create_string_buffer(buffer, len(buffer))
    begin = ctypes.addressof(memory)
    following = _library().cuptiActivityGetNextRecord
    record, valid = ctypes.c_void_p(None), ctypes.c_size_t(len(buffer))
    found = []
    while following(ctypes.c_void_p(begin), valid, ctypes.byref(record)) == _SUCCESS:
        address = record.value
        if address is None:
            break
        kind = ctypes.c_uint32.from_address(address).value
        found.append((kind, address - begin))
    return found


@cache
def _library() -> ctypes.CDLL:
    """The CUPTI that the process has loaded, or else finds beside cupti-python."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib("cupti").abs_path
    except DynamicLibNotFoundError as error:
        msg = "CUPTI's library is missing; pip install nvidia-cuda-cupti"
        raise MeasurementError(msg) from error
    return ctypes.CDLL(path)


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != _SUCCESS:
        text = ctypes.c_char_p()
        _library().cuptiGetResultString(status, ctypes.byref(text))
        cause = text.value.decode() if text.value else str(status)
        msg = (
            f"CUPTI cannot record here ({name}: {cause}); another profiler may be "
            "attached, or the driver may restrict profiling; try --recorder "
            "torch.profiler"
        )
        raise MeasurementError(msg)
