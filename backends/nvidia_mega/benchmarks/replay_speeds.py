"""Shows that a graph replays at another speed once some other graph is there, on a GPU.

Usage: ``python backends/nvidia_mega/benchmarks/replay_speeds.py``. The layer of
Qwen3-30B-A3B as one rank of eight has it, in bfloat16, by the standard chain with stock
programmatic launch and with none and by `nvidia_mega`, eight passes in a graph each;
and as many kernels that do nothing. These four graphs are made once and never touched.
Beside them another graph is instantiated, uploaded, launched and destroyed, and more
are made; after each of these steps the median of 50 launches of the four is printed, in
microseconds a pass. Then the same where all eight passes have the weights and the cache
of the first.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from statistics import median
from typing import Final

import torch

from layerscope.errors import LayerscopeError
from layerscope.graphs.device import resolve
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import LayerSpec
from layerscope_nvidia_mega.layer import make_layer as make_mega
from layerscope_nvidia_mega.switches import Mechanisms
from layerscope_standard.backend import make_workshop
from layerscope_standard.layer import LayerStep, make_layer

PASSES: Final = 8
LAUNCHES: Final = 50
RANKS: Final = 8
KERNELS: Final = 12
"""Of a pass of the standard chain."""

OTHERS: Final = 20
"""Graphs that are made at the end."""


def steps_of(problem: Problem) -> dict[str, LayerStep]:
    """The layer by every arm."""
    device = problem.device
    mega = make_mega(problem, make_workshop(device, ""), Mechanisms())
    return {
        "standard": make_layer(problem, make_workshop(device, "stock")).step,
        "pdl=off": make_layer(problem, make_workshop(device, "off")).step,
        "nvidia_mega": mega.step,
    }


def captured(play: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of what `play` enqueues, which has run once."""
    play()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        play()
    graph.instantiate()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    """Median time of a pass."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
    for _ in range(5):
        graph.replay()
    for event in events[:-1]:
        event.record()
        graph.replay()
    events[-1].record()
    torch.cuda.synchronize()
    spans_ms: list[float] = [a.elapsed_time(b) for a, b in pairwise(events)]
    return median(spans_ms) * 1e3 / PASSES


def beside(play: Callable[[], None]) -> Iterator[str]:
    """What is done beside the graphs that are timed, one after another.

    Args:
        play: enqueues the standard chain.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 (optional)

    from layerscope.graphs.cuda_graph import call  # noqa: PLC0415 (needs it too)

    yield "as captured"
    yield "once more"
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        empty_kernels(100)
    yield "another graph is captured"
    raw = runtime.cudaGraph_t(graph.raw_cuda_graph())
    stream = torch.cuda.current_stream().cuda_stream
    executable = call(runtime.cudaGraphInstantiate, raw, 0)
    yield "instantiated"
    call(runtime.cudaGraphUpload, executable, stream)
    torch.cuda.synchronize()
    yield "uploaded"
    call(runtime.cudaGraphLaunch, executable, stream)
    torch.cuda.synchronize()
    yield "launched"
    call(runtime.cudaGraphExecDestroy, executable)
    yield "destroyed"
    others = []
    for number in range(1, OTHERS + 1):
        others.append(captured(play))
        if number % 4 == 1:
            yield f"{number} more, instantiated by torch"
        others[-1].replay()
        torch.cuda.synchronize()
        if number % 4 == 1:
            yield f"{number} more, launched"
    others.clear()
    yield "all destroyed"


def empty_kernels(count: int) -> None:
    """Enqueue kernels of one thread that spins for one cycle."""
    for _ in range(count):
        torch.cuda._sleep(1)  # noqa: SLF001 (torch has no other)


def plays(problem: Problem, *, is_hot: bool) -> dict[str, Callable[[], None]]:
    """What enqueues eight passes, by arm.

    Args:
        problem: of the layer.
        is_hot: whether all passes are the first.
    """

    def of(step: LayerStep) -> Callable[[], None]:
        def play() -> None:
            for index in range(PASSES):
                for region in problem.spec.regions:
                    step.run(region, 0 if is_hot else index)

        return play

    arms = {name: of(step) for name, step in steps_of(problem).items()}
    return {**arms, "nothing": lambda: empty_kernels(PASSES * KERNELS)}


def show(title: str, arms: Mapping[str, Callable[[], None]]) -> None:
    """Print a table."""
    graphs = {name: captured(play) for name, play in arms.items()}
    print(f"{title:40}" + "".join(f"{name:>12}" for name in graphs), flush=True)
    for state in beside(arms["standard"]):
        times = (microseconds(graph) for graph in graphs.values())
        print(f"{state:40}" + "".join(f"{each:12.2f}" for each in times), flush=True)
    print()


def main() -> None:
    """Time passes of other data, then passes of the same."""
    device = resolve("cuda")
    model = preset("qwen3-30b-a3b")
    spec = LayerSpec(model=model, draft_tokens=5, tp=RANKS, shard_shaped=True)
    options = ProblemOptions(passes=PASSES, steps=1, device=str(device))
    problem = make_problem(spec, options)
    show("weights of every pass its own", plays(problem, is_hot=False))
    show("weights of all passes the same", plays(problem, is_hot=True))


if __name__ == "__main__":
    ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    ).parse_args()
    try:
        main()
    except LayerscopeError as error:
        sys.exit(str(error))
