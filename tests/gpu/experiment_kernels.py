"""Kernels whose order, times and reads show what an edit of their graph has done."""

from typing import Final

import torch

from layerscope.graphs.own_kernels import OwnKernel
from layerscope.graphs.probe_kernels import delay_cycles
from layerscope.regions import Region, layer_pass, region, role

BLOCKS: Final = 132
THREADS: Final = 256
VALUES: Final = BLOCKS * THREADS

_PARTS: Final = r"""
__device__ void trigger() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ long long place() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}
"""

# Weights may be read before the wait, what the kernel before wrote only after it.
STAGE_SOURCE: Final = (
    _PARTS
    + r"""
extern "C" __global__ void stage(
        const float4* weights, long long count, const float* from, float* to) {
    trigger();
    float sum = 0;
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = place(); i < count; i += all) {
        const float4 four = weights[i];
        sum += four.x + four.y + four.z + four.w;
    }
    wait();
    to[place()] = 0.5f * from[(place() + 1) % all] + sum;
}
"""
)

# Every block of the writer writes at another time, at most 20,000 clocks after all have
# triggered. Readers count values that are not of this launch.
ORDER_SOURCE: Final = (
    _PARTS
    + r"""
extern "C" __global__ void count_launch(long long* step) { *step += 1; }

extern "C" __global__ void write_late(const long long* step, long long* values) {
    trigger();
    wait();
    const long long now = *(volatile const long long*)step;
    const long long spin = (blockIdx.x * 7 + now) % 41 * 500, first = clock64();
    while (clock64() - first < spin);
    values[place()] = now;
}

extern "C" __global__ void between(unsigned long long* ran) {
    trigger();
    wait();
    if (place() == 0) atomicAdd(ran, 1ull);
}

extern "C" __global__ void read_plain(
        const long long* step, const long long* values, unsigned long long* stale) {
    trigger();
    wait();
    const long long now = *(volatile const long long*)step;
    if (*(volatile const long long*)(values + place()) != now) atomicAdd(stale, 1ull);
}

extern "C" __global__ void read_at_once(
        const long long* step, const long long* values, unsigned long long* stale) {
    const long long now = *(volatile const long long*)step;
    if (*(volatile const long long*)(values + place()) != now) atomicAdd(stale, 1ull);
    trigger();
    wait();
}

extern "C" __global__ void read_bulk(
        const long long* step, const long long* values, unsigned long long* stale) {
    __shared__ alignas(128) long long copied[256];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned to = (unsigned)__cvta_generic_to_shared(copied);
    const unsigned done_at = (unsigned)__cvta_generic_to_shared(&barrier);
    const unsigned bytes = sizeof(copied);
    trigger();
    wait();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                     :: "r"(done_at) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(done_at), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global"
                     ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(to), "l"(__cvta_generic_to_global(values + place())),
                        "r"(bytes), "r"(done_at) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    const long long first = clock64();
    while (!done && clock64() - first < 1000000)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 "
                     "p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(done_at) : "memory");
    const long long now = *(volatile const long long*)step;
    if (!done || copied[threadIdx.x] != now) atomicAdd(stale, 1ull);
}
"""
)

READERS: Final = ("read_plain", "read_bulk")


class Stages:
    """The body of a replay: ten kernels of attention and ten of moe in every pass.

    Each reads 1 MB of weights of its own and what the one before it wrote.
    """

    def __init__(self, weights: torch.Tensor, *, programmatic: bool) -> None:
        """Read `weights`, float32 [any, 65536, 4], one after the other."""
        self._kernel = OwnKernel(STAGE_SOURCE, "stage", weights.device)
        self._weights = list(weights)
        self._vectors = torch.zeros(2, VALUES, device=weights.device)
        self._programmatic = programmatic

    def __call__(self, passes: int) -> None:
        """Enqueue the kernels of `passes` passes."""
        number = 0
        for index in range(passes):
            with layer_pass(index):
                for name in (Region.ATTENTION, Region.MOE):
                    with region(name), role("stage"):
                        for _ in range(10):
                            self._launch(number)
                            number += 1

    def _launch(self, number: int) -> None:
        weights = self._weights[number % len(self._weights)]
        source, target = self._vectors[number % 2], self._vectors[(number + 1) % 2]
        arguments = (weights, len(weights), source, target)
        self._kernel.launch(BLOCKS, THREADS, arguments, programmatic=self._programmatic)

    def clear(self) -> None:
        """Forget what earlier launches wrote."""
        self._vectors.zero_()

    def result(self) -> torch.Tensor:
        """A copy of what the last kernel wrote, float32 [VALUES]."""
        return self._vectors[0].clone()


class Ordered:
    """The body of a replay: in every pass a late writer, kernels between, a reader.

    The first two are of attention and the ones between of moe, all programmatic.

    Attributes:
        stale: int64 [1], values that readers saw too early.
        ran: int64 [1], how many kernels between have run.
    """

    def __init__(self, device: torch.device, reader: str, between: int) -> None:
        """Read by the kernel `reader`, and put `between` kernels before it."""
        names = ("count_launch", "write_late", "between", reader)
        kernels = [OwnKernel(ORDER_SOURCE, name, device) for name in names]
        self._head, self._writer, self._between, self._reader = kernels
        self._count = between
        self._step, self.stale, self.ran = torch.zeros(
            3, 1, dtype=torch.int64, device=device
        )
        self._values = [
            torch.zeros(VALUES, dtype=torch.int64, device=device) for _ in range(20)
        ]

    def __call__(self, passes: int) -> None:
        """Enqueue the head and the kernels of `passes` passes, at most 20."""
        with region(Region.OTHER):
            self._head.launch(1, 1, [self._step])
        for index in range(passes):
            with layer_pass(index):
                self._enqueue(self._values[index])

    def _enqueue(self, values: torch.Tensor) -> None:
        size = (BLOCKS, THREADS)
        with region(Region.ATTENTION):
            self._writer.launch(*size, [self._step, values], programmatic=True)
        with region(Region.MOE):
            for _ in range(self._count):
                self._between.launch(*size, [self.ran], programmatic=True)
        with region(Region.ATTENTION):
            arguments = [self._step, values, self.stale]
            self._reader.launch(*size, arguments, programmatic=True)


EARLY_WORK_SOURCE: Final = (
    _PARTS
    + r"""
extern "C" __global__ void first() {
    wait();
    trigger();
}

extern "C" __global__ void second(long long cycles, long long is_early) {
    trigger();
    if (!is_early) wait();
    const long long start = clock64();
    while (clock64() - start < cycles);
    if (is_early) wait();
}
"""
)


class EarlyWork:
    """The body of a replay: in every pass a kernel, and one that works after it.

    The second works before or after it waits for the first, and reads nothing of it;
    their roles are ``first`` and ``second``.
    """

    def __init__(self, device: torch.device, work_ns: int, *, is_early: bool) -> None:
        """Work `work_ns` at the highest clock, before the wait where `is_early`."""
        self._first, self._second = (
            OwnKernel(EARLY_WORK_SOURCE, name, device) for name in ("first", "second")
        )
        self._arguments = (delay_cycles(device, work_ns), int(is_early))

    def __call__(self, passes: int) -> None:
        """Enqueue the kernels of `passes` passes."""
        for index in range(passes):
            with layer_pass(index), region(Region.MOE):
                with role("first"):
                    self._first.launch(1, 32, [], programmatic=True)
                with role("second"):
                    self._second.launch(1, 32, self._arguments, programmatic=True)
