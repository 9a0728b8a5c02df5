"""Whether a serial twin takes what a chain takes that never had programmatic edges.

In the recorded self-tests, kernels of serial twins follow each other 0.07 µs after the
last, those of plain chains 0.42 µs: the twin of a chain that was launched with the
programmatic attribute may keep a part of what the attribute gives. This shows it alone.

Usage: ``python benchmarks/serial_twins.py``, on an NVIDIA GPU with programmatic launch.
The kernels are the same in all rows: each waits for the one before it, and triggers
when it is done or when it starts. Prints µs a kernel, the slope over chains of 50 and
150 kernels, as the median and the quartiles of 60 rounds in which all take turns.
"""

import ctypes
from collections.abc import Callable
from statistics import quantiles
from typing import Any, Final, TypeAlias

import torch
from cuda.bindings import driver

from layerscope.errors import MeasurementError
from layerscope.experiment import SERIAL
from layerscope.graphs.cuda import GraphPlayer, GraphReplay
from layerscope.graphs.device import resolve
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.own_kernels import OwnKernel, check
from layerscope.graphs.replay import Body, Replay
from layerscope.regions import Region, layer_pass, region

SOURCE: Final = r"""
extern "C" __global__ void step(float* vector, int is_early) {
    if (is_early) asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    vector[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f;
}
"""
BLOCKS: Final = 132
THREADS: Final = 256
LENGTHS: Final = (1, 3)
KERNELS: Final = 50
ROUNDS: Final = 60
WARM: Final = 20

Pair: TypeAlias = tuple[Replay, Replay]


def chain(device: torch.device, *, programmatic: bool, early: bool) -> Body:
    """A body of 50 kernels a pass."""
    kernel = OwnKernel(SOURCE, "step", device)
    vector = torch.zeros(BLOCKS * THREADS, device=device)

    def run(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index), region(Region.OTHER):
                for _ in range(KERNELS):
                    arguments = (vector, ctypes.c_int(early))
                    kernel.launch(BLOCKS, THREADS, arguments, programmatic=programmatic)

    return run


def serial(replay: GraphReplay) -> Replay:
    """Its serial twin."""
    change = plan(SERIAL, replay.nodes, replay.links, Allowed())
    if not isinstance(change, Change):
        raise SystemExit("; ".join(change))
    return replay.variant(change)


def instantiated_again(replay: GraphReplay) -> Replay:
    """The same graph, instantiated once more."""
    return replay.variant(Change())


def cleared(replay: GraphReplay) -> Replay:
    """Its serial twin, made while no kernel of it has the programmatic attribute.

    The runtime documents that attribute for launches alone, and may refuse.
    """
    name = driver.CUkernelNodeAttrID
    attribute = name.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value = driver.CUkernelNodeAttrValue()
    value.programmaticStreamSerializationAllowed = 0
    for node in replay.nodes:
        handle = driver.CUgraphNode(node.handle)
        check(driver.cuGraphKernelNodeSetAttribute(handle, attribute, value))
    return serial(replay)


class Rebuilt:
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


def rebuilt(replay: GraphReplay) -> Replay:
    """A chain of its kernels, added anew."""
    return Rebuilt(replay)


def main() -> None:
    """Measure, and print a line of each."""
    device = resolve("cuda")
    print(torch.cuda.get_device_name(device))
    player = GraphPlayer()
    kinds = {
        "plain": (chain(device, programmatic=False, early=False), None),
        "plain, again": (chain(device, programmatic=False, early=False), None),
        "plain, instantiated again": (
            chain(device, programmatic=False, early=False),
            instantiated_again,
        ),
        "stock": (chain(device, programmatic=True, early=False), None),
        "stock, serial twin": (chain(device, programmatic=True, early=False), serial),
        "early": (chain(device, programmatic=True, early=True), None),
        "early, serial twin": (chain(device, programmatic=True, early=True), serial),
        "early, nodes added anew": (
            chain(device, programmatic=True, early=True),
            rebuilt,
        ),
        "early, twin, attribute off": (
            chain(device, programmatic=True, early=True),
            cleared,
        ),
    }
    pairs = {}
    for name, kind in kinds.items():
        try:
            pairs[name] = pair(player, *kind)
        except MeasurementError as error:
            print(f"{name:28}{error}")
    order = [replay for both in pairs.values() for replay in both]
    for replay in order * WARM:
        replay.launch()
    player.wait()
    times_ns = player.time(order * ROUNDS).durations_ns()
    for place, name in enumerate(pairs):
        short = times_ns[2 * place :: len(order)]
        long = times_ns[2 * place + 1 :: len(order)]
        kernels = KERNELS * (LENGTHS[1] - LENGTHS[0])
        each = [(b - a) / kernels / 1e3 for a, b in zip(short, long, strict=True)]
        low, middle, high = quantiles(each, n=4)
        print(f"{name:28}{middle:7.3f}  ({low:.3f} … {high:.3f})")


def pair(
    player: GraphPlayer, body: Body, edit: Callable[[GraphReplay], Replay] | None
) -> Pair:
    """Replays of both lengths, edited."""
    short, long = (player.capture(body, length) for length in LENGTHS)
    return (short, long) if edit is None else (edit(short), edit(long))


if __name__ == "__main__":
    with torch.no_grad():
        main()
