"""The kernels of the self-test, as CUDA C++; they differ by name and loads in flight.

None waits for a kernel beside it, and none spins for longer than `LONGEST_SPIN_NS`.
"""

from typing import Final

from layerscope.selftest.cases import Launch, Start

THREADS: Final = 512
"""Threads of a block."""

LOAD_WORDS: Final = 4
LOAD_BYTES: Final = 4 * LOAD_WORDS
"""What a thread reads at once, in words of 32 bits and in bytes."""

FACTOR: Final = 5
"""An update multiplies the vector by it, and adds the weights."""

LONGEST_SPIN_NS: Final = 1_000_000

KERNELS: Final = (
    "layerscope_read",
    "layerscope_read_more",
    "layerscope_read_merged",
    "layerscope_read_slowly",
)

_STARTS: Final = {start: number for number, start in enumerate(Start)}

# A sweep is one load of every thread of the grid. All loads of a batch are in flight at
# once. Two blocks fit on a processor, so that the next kernel has room to start.
# The values of the extra weights are multiplied by a zero that the compiler cannot see.
# The volatile read of the vector stays behind the wait, and goes past the first-level
# cache, where a kernel that has started early may find an old line.
SOURCE: Final = r"""
enum Start { PLAIN, STOCK, LATE, EARLY };

__device__ void wait_for_others() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ void trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ long long now_ns() {
    long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ void spin(long long wanted_ns) {
    const long long most_ns = wanted_ns < 1000000 ? wanted_ns : 1000000;
    const long long begun_ns = now_ns(), begun_cycle = clock64();
    while (now_ns() - begun_ns < most_ns && clock64() - begun_cycle < 2000000) {}
}

template <int LOADS>
__device__ unsigned int read(const uint4* __restrict__ weights, int sweeps) {
    const int stride = gridDim.x * blockDim.x;
    const uint4* next = weights + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int sum = 0;
#pragma unroll 1
    for (int left = sweeps; left > 0; left -= LOADS, next += LOADS * stride) {
        uint4 words[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            words[i] = i < left ? __ldg(next + i * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            sum += words[i].x + words[i].y + words[i].z + words[i].w;
    }
    return sum;
}

template <int LOADS>
__device__ void update(
        const uint4* __restrict__ weights, const uint4* __restrict__ extra,
        unsigned int* vector, long long sweeps, long long updates,
        long long extra_sweeps, long long zero, long long start, long long spin_ns) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (start == EARLY) trigger();
    if (start == STOCK) wait_for_others();
    unsigned int factor = 1, sum = 0;
#pragma unroll 1
    for (long long i = 0; i < updates; ++i) {
        factor *= FACTOR;
        sum = sum * FACTOR + read<LOADS>(weights + i * sweeps * stride, sweeps);
    }
    sum += (unsigned int)zero * read<LOADS>(extra, extra_sweeps);
    if (start == LATE || start == EARLY) wait_for_others();
    vector[first] = *(volatile unsigned int*)(vector + first) * factor + sum;
    if (spin_ns > 0 && threadIdx.x == 0) spin(spin_ns);
    if (start == STOCK || start == LATE) trigger();
}

#define KERNEL(NAME, LOADS)                                                        \
    extern "C" __global__ void __launch_bounds__(512, 2) NAME(                     \
            const uint4* __restrict__ weights, const uint4* __restrict__ extra,    \
            unsigned int* vector, long long sweeps, long long updates,             \
            long long extra_sweeps, long long zero, long long start,               \
            long long spin_ns) {                                                   \
        update<LOADS>(weights, extra, vector, sweeps, updates, extra_sweeps, zero, \
                      start, spin_ns);                                             \
    }

KERNEL(layerscope_read, 8)
KERNEL(layerscope_read_more, 8)
KERNEL(layerscope_read_merged, 8)
KERNEL(layerscope_read_slowly, 1)
""".replace("FACTOR", str(FACTOR))


def numbers(launch: Launch, sweeps: int) -> tuple[int, ...]:
    """What the kernel of `launch` is called with after its three pointers.

    Args:
        launch: one of an arm.
        sweeps: of a chunk of weights.
    """
    return (
        launch.chunks * sweeps,
        launch.updates,
        launch.extra * sweeps,
        0,
        _STARTS[launch.start],
        min(launch.spin_ns, LONGEST_SPIN_NS),
    )
