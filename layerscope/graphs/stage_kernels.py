"""The kernels of a skeleton: they read, wait, trigger, and hand activations on.

Two of one source: a deep one, whose threads have eight loads of 16 bytes in flight,
and a shallow one for stages that read little, which leaves more of a multiprocessor to
the kernels that start early behind it.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch

from layerscope.graphs.own_kernels import OwnKernel
from layerscope.graphs.replay import Body
from layerscope.graphs.skeleton import (
    THREADS,
    VECTOR_BYTES,
    Order,
    Stage,
    Variant,
    blocks_of,
    is_shallow,
    offsets_of,
    order_of,
    stages_of,
)
from layerscope.regions import Region, region
from layerscope.study import L2_FACTOR

NAMES: Final = ("layerscope_deep_stage", "layerscope_shallow_stage")

_COUNT: Final = 32
"""Beside the flags of `Order`: add up the words that are read."""

_FLUSH_GRID: Final = 4
_WORD_BYTES: Final = 8

# A warp reads tiles of consecutive vectors, and neighbouring tiles go to neighbouring
# blocks, so that few bytes still use all multiprocessors. What was read is summed and
# compared with a number that it hardly ever is: a compiler may leave out loads whose
# values nobody needs. Activations are asked for before what is read after the wait, for
# a kernel needs both at once. Every kernel waits for the whole of the one before it, so
# one buffer of activations does for all.
SOURCE: Final = r"""
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
enum Order {
    kReadFirst = 1, kWait = 2, kTriggerFirst = 4, kTriggerWaited = 8, kTriggerLast = 16,
    kCount = 32
};
constexpr unsigned int kHardlyEver = 0x9e3779b9;

__device__ __forceinline__ void trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ uint4 load(const uint4* from) {
    uint4 got;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w) : "l"(from));
    return got;
}

__device__ __forceinline__ unsigned int words(const uint4& got) {
    return got.x + got.y + got.z + got.w;
}

template <int deep>
__device__ __forceinline__ unsigned int read(const uint4* from, int vectors) {
    constexpr int kTile = 32 * deep;
    const int lane = threadIdx.x % 32;
    const int tiles = (vectors + kTile - 1) / kTile;
    unsigned int sum = 0;
    for (int tile = threadIdx.x / 32 * gridDim.x + blockIdx.x; tile < tiles;
         tile += kWarps * gridDim.x) {
        const uint4* at = from + (long long)tile * kTile + lane;
        if ((tile + 1) * kTile <= vectors) {
            uint4 got[deep];
#pragma unroll
            for (int n = 0; n < deep; ++n) got[n] = load(at + 32 * n);
#pragma unroll
            for (int n = 0; n < deep; ++n) sum += words(got[n]);
        } else {
#pragma unroll 1
            for (int i = tile * kTile + lane; i < vectors; i += 32, at += 32)
                sum += words(load(at));
        }
    }
    return sum;
}

template <int deep>
__device__ __forceinline__ void stage(
        const uint4* cold, int vectors, uint4* handed, int handed_vectors,
        unsigned int* total, int order) {
    const int own = blockIdx.x * kThreads + threadIdx.x;
    unsigned int sum = 0;
    if (order & kTriggerFirst) trigger();
    if (order & kReadFirst) sum = read<deep>(cold, vectors);
    if (order & kWait) wait();
    if (order & kTriggerWaited) trigger();
    uint4 got;
    if (own < handed_vectors) got = __ldcg(handed + own);
    if (!(order & kReadFirst)) sum = read<deep>(cold, vectors);
    if (own < handed_vectors) {
        ++got.x;
        handed[own] = got;
    }
    if ((order & kCount) || sum == kHardlyEver) atomicAdd(total, sum);
    if (order & kTriggerLast) trigger();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 4) layerscope_deep_stage(
        const uint4* cold, int vectors, uint4* handed, int handed_vectors,
        unsigned int* total, int order) {
    stage<8>(cold, vectors, handed, handed_vectors, total, order);
}

extern "C" __global__ void __launch_bounds__(kThreads, 8) layerscope_shallow_stage(
        const uint4* cold, int vectors, uint4* handed, int handed_vectors,
        unsigned int* total, int order) {
    stage<1>(cold, vectors, handed, handed_vectors, total, order);
}
"""


class _Launch(NamedTuple):
    """One kernel of a pass; where it reads is relative to the pass."""

    kernel: OwnKernel
    blocks: int
    offset: int
    vectors: int
    order: int
    is_programmatic: bool


class Skeleton:
    """Memory that kernels of chains read, and the replays that read it.

    Every replay begins by reading other memory, `L2_FACTOR` times the L2 cache of it,
    and every pass reads memory of its own, so that nothing is found in the cache.
    """

    def __init__(
        self, device: torch.device, cold_bytes: int, handed_bytes: int
    ) -> None:
        """Allocate and fill the memory, and compile the kernels.

        Args:
            device: a CUDA device, which must be the current.
            cold_bytes: of all passes of the longest replay.
            handed_bytes: activations that each kernel hands to the next.

        Raises:
            MeasurementError: the kernels cannot be compiled or loaded.
            torch.OutOfMemoryError: there is not so much memory.
        """
        properties = torch.cuda.get_device_properties(device)
        self._processors = properties.multi_processor_count
        self._deep, self._shallow = (OwnKernel(SOURCE, name, device) for name in NAMES)
        self.cold = _filled(cold_bytes, device)
        """int64, random; what the passes read, one after another."""

        self._junk = _filled(L2_FACTOR * properties.L2_cache_size, device)
        vectors = -(-handed_bytes // VECTOR_BYTES)
        self.handed = torch.zeros(vectors, 4, dtype=torch.int32, device=device)
        """int32 [vectors, 4]; every kernel adds 1 to the first of each vector."""

        self.total = torch.zeros(1, dtype=torch.int32, device=device)
        """int32 [1]: sum of all 32-bit words read, by bodies that count."""

        torch.cuda.synchronize(device)  # replays run on a stream of their own

    def body(
        self,
        chain: Sequence[Stage],
        variant: Variant,
        most: int | None,
        *,
        counts: bool = False,
    ) -> Body:
        """What a replay of `chain` in `variant` runs; pass k reads the k-th copy.

        Args:
            chain: the kernels of a pass.
            variant: how early they start.
            most: blocks a multiprocessor, one of `skeleton.GRIDS`.
            counts: whether what is read is added to `total`, which costs time.
        """
        launches = self._launches(chain, variant, most, counts=counts)
        _, stride = offsets_of(chain)
        flush = self._flush()

        def play(passes: int) -> None:
            with region(Region.OTHER):
                flush()
                for index in range(passes):
                    for launch in launches:
                        self._enqueue(launch, index * stride)

        return play

    def _launches(
        self,
        chain: Sequence[Stage],
        variant: Variant,
        most: int | None,
        *,
        counts: bool,
    ) -> list[_Launch]:
        stages = stages_of(variant, chain)
        offsets, _ = offsets_of(stages)
        launches = []
        for stage, offset in zip(stages, offsets, strict=True):
            is_small = is_shallow(stage, self._processors)
            order = order_of(variant, stage)
            launches.append(
                _Launch(
                    kernel=self._shallow if is_small else self._deep,
                    blocks=blocks_of(stage, self.handed.nbytes, self._processors, most),
                    offset=offset,
                    vectors=-(-stage.bytes // VECTOR_BYTES),
                    order=order | (_COUNT if counts else 0),
                    is_programmatic=bool(order & Order.WAIT),
                )
            )
        return launches

    def _enqueue(self, launch: _Launch, pass_offset: int) -> None:
        launch.kernel.launch(
            launch.blocks,
            THREADS,
            (
                self.cold.data_ptr() + pass_offset + launch.offset,
                ctypes.c_int(launch.vectors),
                self.handed,
                ctypes.c_int(len(self.handed)),
                self.total,
                ctypes.c_int(launch.order),
            ),
            programmatic=launch.is_programmatic,
        )

    def _flush(self) -> Callable[[], None]:
        junk = self._junk
        arguments = (
            junk,
            ctypes.c_int(junk.nbytes // VECTOR_BYTES),
            self.handed,
            ctypes.c_int(0),
            self.total,
            ctypes.c_int(0),
        )
        blocks = _FLUSH_GRID * self._processors
        return lambda: self._deep.launch(blocks, THREADS, arguments)


def _filled(size: int, device: torch.device) -> torch.Tensor:
    """At least `size` bytes of random whole words, and as many vectors as hold them."""
    words = -(-size // VECTOR_BYTES) * VECTOR_BYTES // _WORD_BYTES
    return torch.empty(words, dtype=torch.int64, device=device).random_()
