"""Small kernels of our own that run inside measured graphs."""

from typing import Final

import torch
from cuda.bindings import driver

from layerscope.graphs.own_kernels import OwnKernel, check
from layerscope.layers.feed import Feed
from layerscope.regions import Region, layer_pass, region

_WARP: Final = 32
_EARLY_KERNELS: Final = 50
"""Of a pass: two had no effect on the speed of launches, ten and more had."""

_THREADS: Final = 512
_BLOCK_BYTES: Final = 1 << 16
"""What one block copies before it is worth a second one."""

_MOST_BLOCKS: Final = 256

# Every block reads the count before it draws a ticket, and the one with the last ticket
# writes it, so no block can still need what is overwritten. The kernel's cost is the
# same in every replay and cancels in the slope.
ADVANCE_SOURCE: Final = r"""
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
        self._kernel = OwnKernel(ADVANCE_SOURCE, "layerscope_advance", device)
        rows = [
            (pool.rows.data_ptr(), pool.target.data_ptr(), pool.target.nbytes)
            for pool in feed.pools
        ]
        table = torch.tensor(rows, dtype=torch.int64, device=device)
        tickets = torch.zeros(1, dtype=torch.int32, device=device)
        counters = (feed.launches, feed.hold, feed.step)
        self._arguments = (*counters, tickets, table, len(rows), feed.steps)
        copied = sum(pool.target.nbytes for pool in feed.pools)
        self._blocks = min(_MOST_BLOCKS, 1 + copied // _BLOCK_BYTES)

    def __call__(self) -> None:
        """Enqueue the kernel on torch's current stream; captures like any other."""
        self._kernel.launch(self._blocks, _THREADS, self._arguments)


# It triggers before it spins, and waits after it: a kernel that could start before the
# one in front of it has ended still can, and still sees what that one wrote. It counts
# cycles, for the global timer may step by a whole microsecond.
DELAY_SOURCE: Final = r"""
extern "C" __global__ void layerscope_delay(long long cycles) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    const long long start = clock64();
    while (clock64() - start < cycles);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
"""


class EarlyKernels:
    """A body of kernels that do nothing, each free to start before the end of another.

    Needs compute capability 9.0.
    """

    def __init__(self, device: torch.device) -> None:
        """Compile the kernel (once a device).

        Raises:
            MeasurementError: NVRTC or the driver refuses.
        """
        self._kernel = delay_kernel(device)

    def __call__(self, passes: int) -> None:
        """Enqueue the kernels of `passes` passes."""
        for index in range(passes):
            with layer_pass(index), region(Region.OTHER):
                for place in range(_EARLY_KERNELS):
                    follows = index + place > 0
                    self._kernel.launch(1, _WARP, [0], programmatic=follows)


def delay_cycles(device: torch.device, delay_ns: int) -> int:
    """Cycles of a multiprocessor in so many ns, at the highest clock of `device`.

    At a lower clock the spin is longer, in proportion.

    Raises:
        MeasurementError: the driver does not tell the clock.
    """
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
    clock_khz: int = check(driver.cuDeviceGetAttribute(attribute, device.index or 0))
    return delay_ns * clock_khz // 1_000_000


def delay_kernel(device: torch.device) -> OwnKernel:
    """The kernel that delays what follows it by a number of nanoseconds.

    Raises:
        MeasurementError: NVRTC or the driver refuses.
    """
    return OwnKernel(DELAY_SOURCE, "layerscope_delay", device)
