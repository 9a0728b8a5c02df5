"""Small kernels of our own that run inside measured graphs, compiled by NVRTC.

No compiler is needed on the user's machine: NVRTC comes with CUDA builds of torch.
"""

import ctypes
from functools import cache
from typing import Any, Final

import torch
from cuda.bindings import driver, nvrtc

from layerscope.errors import MeasurementError
from layerscope.layers.feed import Feed

_THREADS: Final = 512
_BLOCK_BYTES: Final = 1 << 16
"""What one block copies before it is worth a second one."""

_MOST_BLOCKS: Final = 256

# Every block reads the count before it draws a ticket, and the one with the last ticket
# writes it, so no block can still need what is overwritten. The kernel's cost is the
# same in every replay and cancels in the slope.
_ADVANCE_SOURCE: Final = r"""
struct Pool { const char* rows; char* target; long long bytes; };

__device__ bool is_aligned(const Pool& pool) {
    const long long low_bits = (long long)pool.rows | (long long)pool.target;
    return (low_bits | pool.bytes) % sizeof(uint4) == 0;
}

template <typename T>
__device__ void copy(const char* from, char* to, long long bytes) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long i = first; i < bytes / (long long)sizeof(T); i += stride)
        reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i];
}

extern "C" __global__ void layerscope_advance(
        long long* launches, const long long* hold, long long* step,
        unsigned int* tickets, const Pool* pools, long long count, long long steps) {
    const long long launch = *(volatile long long*)launches + 1;
    const long long next = launch / *hold % steps;
    for (long long i = 0; i < count; ++i) {
        const Pool pool = pools[i];
        const char* row = pool.rows + next * pool.bytes;
        if (is_aligned(pool)) copy<uint4>(row, pool.target, pool.bytes);
        else copy<char>(row, pool.target, pool.bytes);
    }
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(tickets, 1) == gridDim.x - 1) {
        *launches = launch;
        *step = next;
        *tickets = 0;
    }
}
"""


class AdvanceKernel:
    """The head of a replay in one kernel: the next step of a feed, and its inputs."""

    def __init__(self, feed: Feed) -> None:
        """Compile (once a device) and bind the kernel to the pools of `feed`.

        Raises:
            MeasurementError: NVRTC or the driver refuses.
        """
        device = feed.device
        self._function = _compiled(device, "layerscope_advance", _ADVANCE_SOURCE)
        rows = [
            (pool.rows.data_ptr(), pool.target.data_ptr(), pool.target.nbytes)
            for pool in feed.pools
        ]
        self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        self._tickets = torch.zeros(1, dtype=torch.int32, device=device)
        pointers = (
            *(feed.launches, feed.hold, feed.step),
            *(self._tickets, self._table),
        )
        addresses = (tensor.data_ptr() for tensor in pointers)
        self._values = (*addresses, len(rows), feed.steps)
        types = (ctypes.c_void_p,) * len(pointers)
        self._types = (*types, ctypes.c_longlong, ctypes.c_longlong)
        copied = sum(pool.target.nbytes for pool in feed.pools)
        self._blocks = min(_MOST_BLOCKS, 1 + copied // _BLOCK_BYTES)

    def __call__(self) -> None:
        """Enqueue the kernel on torch's current stream; captures like any other."""
        stream = torch.cuda.current_stream().cuda_stream
        arguments = (self._values, self._types)
        grid_and_block = (self._blocks, 1, 1, _THREADS, 1, 1)
        _check(
            driver.cuLaunchKernel(
                self._function, *grid_and_block, 0, stream, arguments, 0
            )
        )


@cache
def _compiled(device: torch.device, name: str, source: str) -> Any:  # noqa: ANN401
    """The kernel `name`, loaded into the context of `device`, which is the current."""
    program = _check(
        nvrtc.nvrtcCreateProgram(source.encode(), b"layerscope.cu", 0, [], [])
    )
    major, minor = torch.cuda.get_device_capability(device)
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    _check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    image = b"\0" * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, image))
    _check(nvrtc.nvrtcDestroyProgram(program))
    module = _check(driver.cuModuleLoadData(image))
    return _check(driver.cuModuleGetFunction(module, name.encode()))


def _check(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (untyped bindings)
    status, *values = result
    if status.value:
        msg = f"compiling or launching a kernel of layerscope failed: {status.name}"
        raise MeasurementError(msg)
    return values[0] if values else None
