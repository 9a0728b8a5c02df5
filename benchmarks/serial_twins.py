"""Whether a serial twin takes what a chain takes that never had programmatic edges.

Usage: ``python benchmarks/serial_twins.py``, on an NVIDIA GPU with programmatic launch.
In all rows the kernels do the same: each waits for the one before it, and triggers when
it is done (stock) or when it starts (early), which does nothing without programmatic
edges. *Again* is a chain whose nodes were added one by one, without any attribute of
their launches. Prints µs a kernel, the slope over chains of 50 and 150 kernels, as the
median and the quartiles of 60 rounds in random order: before a profiler was attached,
and after it was detached; of kernels that read nothing, and of some that read what no
cache holds.
"""

import ctypes
import random
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from statistics import quantiles
from typing import Any, Final, TypeAlias

import torch
from cuda.bindings import driver

from layerscope.errors import LayerscopeError
from layerscope.experiment import SERIAL
from layerscope.graphs.cuda import GraphPlayer, GraphReplay
from layerscope.graphs.device import resolve
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.own_kernels import OwnKernel, check
from layerscope.graphs.replay import Body, Replay
from layerscope.record.cupti import CuptiRecorder
from layerscope.record.recorder import Launch
from layerscope.regions import Region, layer_pass, region

SOURCE: Final = r"""
extern "C" __global__ void step(
        const float4* weights, long long count, float* vector, int is_early) {
    if (is_early) asm volatile("griddepcontrol.launch_dependents;");
    const long long place = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (long long i = place; i < count; i += gridDim.x * blockDim.x) {
        const float4 four = __ldcs(weights + i);
        sum += four.x + four.y + four.z + four.w;
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    vector[place] += sum;
}
"""
BLOCKS: Final = 132
THREADS: Final = 256
LENGTHS: Final = (1, 3)
KERNELS: Final = 50
READS: Final = (0, 1 << 20, 4 << 20)
"""Bytes that a kernel reads."""

COLD_BYTES: Final = 1 << 30
ROUNDS: Final = 60
WARM: Final = 20

Pair: TypeAlias = tuple[Replay, Replay]


class Chain:
    """A body of 50 kernels a pass."""

    def __init__(self, weights: torch.Tensor, read_bytes: int) -> None:
        """Read so many bytes of `weights`, float32 [any], with each kernel."""
        self._kernel = OwnKernel(SOURCE, "step", weights.device)
        self._vector = torch.zeros(BLOCKS * THREADS, device=weights.device)
        chunk = max(read_bytes, 4) // 4
        self._chunks = weights[: len(weights) // chunk * chunk].view(-1, chunk)
        self._vectors_read = read_bytes // 16
        self._next = 0

    def body(self, *, programmatic: bool, early: bool) -> Body:
        """The kernels, launched so."""

        def run(passes: int) -> None:
            for index in range(passes):
                with layer_pass(index), region(Region.OTHER):
                    for _ in range(KERNELS):
                        self._launch(programmatic=programmatic, early=early)

        return run

    def _launch(self, *, programmatic: bool, early: bool) -> None:
        chunk = self._chunks[self._next % len(self._chunks)]
        self._next += 1
        arguments = (chunk, self._vectors_read, self._vector, ctypes.c_int(early))
        self._kernel.launch(BLOCKS, THREADS, arguments, programmatic=programmatic)


def as_captured(replay: GraphReplay) -> Replay:
    """The replay itself."""
    return replay


def serial(replay: GraphReplay) -> Replay:
    """Its serial twin."""
    change = plan(SERIAL, replay.nodes, replay.links, Allowed())
    if not isinstance(change, Change):
        raise SystemExit("; ".join(change))
    return replay.variant(change)


class Again:
    """A chain of kernel nodes that are added anew, with the parameters of others."""

    def __init__(self, replay: GraphReplay) -> None:
        """Take the kernels of `replay`, which must stay open, in their order."""
        self._source = replay
        self._graph = check(driver.cuGraphCreate(0))
        before: list[Any] = []
        for node in replay.nodes:
            handle = driver.CUgraphNode(node.handle)
            parameters = check(driver.cuGraphKernelNodeGetParams(handle))
            added = driver.cuGraphAddKernelNode(
                self._graph, before, len(before), parameters
            )
            before = [check(added)]
        self._exec = check(driver.cuGraphInstantiate(self._graph, 0))

    def launch(self) -> None:
        """Enqueue it on the stream of the replay that it was made of."""
        check(driver.cuGraphLaunch(self._exec, self._source.captured.stream))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (of the replay)
        """What else is asked of a replay is answered by the source."""
        return getattr(self._source, name)


KINDS: Final[dict[str, tuple[bool, bool, Callable[[GraphReplay], Replay]]]] = {
    "plain": (False, False, as_captured),
    "plain, early kernels": (False, True, as_captured),
    "stock": (True, False, as_captured),
    "stock, serial twin": (True, False, serial),
    "early": (True, True, as_captured),
    "early, serial twin": (True, True, serial),
    "early, again": (True, True, Again),
}
"""By name: launched with the attribute, triggers early, and what is made of it."""


def main() -> None:
    """Measure, and print a line of each."""
    device = resolve("cuda")
    print(torch.cuda.get_device_name(device))
    player = GraphPlayer()
    weights = torch.rand(COLD_BYTES // 4, device=device)
    made = {
        (name, size): pair(player, Chain(weights, size), *kind)
        for size in READS
        for name, kind in KINDS.items()
    }
    before = measured(player, made)
    recorder = CuptiRecorder()
    with recorder.attached():
        for place, (short, _) in enumerate(made.values()):
            recorder.record([Launch(short, str(place), 0, 0)])
    after = measured(player, made)
    print(f"{'':24}{'bytes':>9}  before CUPTI{'':12}after it")
    for (name, size), text in before.items():
        print(f"{name:24}{size:9,}  {text:24}{after[name, size]}")


def pair(
    player: GraphPlayer,
    chain: Chain,
    programmatic: bool,  # noqa: FBT001 (from KINDS)
    early: bool,  # noqa: FBT001
    make: Callable[[GraphReplay], Replay],
) -> Pair:
    """Replays of both lengths."""
    body = chain.body(programmatic=programmatic, early=early)
    short, long = (make(player.capture(body, length)) for length in LENGTHS)
    return short, long


def measured(
    player: GraphPlayer, made: dict[tuple[str, int], Pair]
) -> dict[tuple[str, int], str]:
    """µs a kernel of each pair, in words."""
    places = [(key, which) for key in made for which in range(len(LENGTHS))]
    for key, which in places * WARM:
        made[key][which].launch()
    player.wait()
    draw = random.Random(0)  # noqa: S311 (not a secret)
    order = [place for _ in range(ROUNDS) for place in draw.sample(places, len(places))]
    times_ns = player.time([made[key][which] for key, which in order]).durations_ns()
    seen: dict[tuple[str, int], tuple[list[int], list[int]]] = {
        key: ([], []) for key in made
    }
    for (key, which), time_ns in zip(order, times_ns, strict=True):
        seen[key][which].append(time_ns)
    kernels = KERNELS * (LENGTHS[1] - LENGTHS[0])
    texts = {}
    for key, (short, long) in seen.items():
        each = [(b - a) / kernels / 1e3 for a, b in zip(short, long, strict=True)]
        low, middle, high = quantiles(each, n=4)
        texts[key] = f"{middle:6.3f} ({low:.3f} … {high:.3f})"
    return texts


if __name__ == "__main__":
    ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    ).parse_args()
    try:
        with torch.no_grad():
            main()
    except LayerscopeError as error:
        sys.exit(str(error))
