"""Shows that graphs replay at another speed once others are made, on a GPU.

Usage: ``python backends/nvidia_mega/benchmarks/replay_speeds.py``. The layer of
Qwen3-30B-A3B as one rank of eight has it, in bfloat16, by the standard chain with stock
programmatic launch and with none and by `nvidia_mega`, eight passes in a graph each;
and as many kernels that only count. These four graphs are made once and never touched.
Beside them other graphs are made, launched and closed; after each of these steps the
median of 50 launches of the four is printed, in microseconds a pass. Then the same
where all eight passes have the weights and the cache of the first.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import torch

from layerscope.errors import LayerscopeError
from layerscope.graphs.device import resolve
from layerscope.graphs.players import player_for
from layerscope.graphs.replay import Body, Player, Replay
from layerscope.graphs.settling import settled
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import LayerSpec
from layerscope.regions import layer_pass, region
from layerscope_nvidia_mega.layer import make_layer as make_mega
from layerscope_nvidia_mega.switches import Mechanisms
from layerscope_standard.backend import make_workshop
from layerscope_standard.layer import LayerStep, make_layer

PASSES: Final = 8
LAUNCHES: Final = 50
RANKS: Final = 8
KERNELS: Final = 12
"""Of a pass of the standard chain."""

FEW_KERNELS, MANY_KERNELS = 10, 200
GRAPHS: Final = 20
"""Made at once, of up to 240 kernels each."""


def steps_of(problem: Problem) -> dict[str, LayerStep]:
    """The layer by every arm."""
    device = problem.device
    mega = make_mega(problem, make_workshop(device, ""), Mechanisms())
    return {
        "standard": make_layer(problem, make_workshop(device, "stock")).step,
        "pdl=off": make_layer(problem, make_workshop(device, "off")).step,
        "nvidia_mega": mega.step,
    }


def bodies_of(problem: Problem, *, is_hot: bool) -> dict[str, Body]:
    """What a replay of each arm runs.

    Args:
        problem: of the layer.
        is_hot: whether all passes are the first.
    """

    def of(step: LayerStep) -> Body:
        def play(passes: int) -> None:
            for index in range(passes):
                with layer_pass(index):
                    for name in problem.spec.regions:
                        with region(name):
                            step.run(name, 0 if is_hot else index)

        return play

    arms = {name: of(step) for name, step in steps_of(problem).items()}
    return {**arms, "nothing": nothing(KERNELS, problem.device)}


def nothing(kernels: int, device: torch.device) -> Body:
    """So many kernels a pass that only count how often they ran."""
    from layerscope.graphs.calibration import (  # noqa: PLC0415 (needs bindings)
        SmallChain,
    )

    return SmallChain(device, 1, kernels)


def early_kernels(device: torch.device) -> Body:
    """Small kernels with programmatic edges."""
    from layerscope.graphs.probe_kernels import (  # noqa: PLC0415 (needs bindings)
        EarlyKernels,
    )

    return EarlyKernels(device)


def beside(player: Player, device: torch.device) -> Iterator[str]:
    """What is done beside the graphs that are timed, one after another."""
    few, many = nothing(FEW_KERNELS, device), nothing(MANY_KERNELS, device)
    early, small = early_kernels(device), nothing(KERNELS, device)
    yield "made and launched"
    with settled(player, device):
        yield "settled"
    yield from life(f"graph of {FEW_KERNELS} kernels", player, [(few, 1)])
    yield from life(f"graph of {MANY_KERNELS} kernels", player, [(many, 1)])
    yield from life(f"graph of {FEW_KERNELS} kernels", player, [(few, 1)])
    yield from life("graph with programmatic edges", player, [(early, 1)])
    lengths = [(small, 1 + index) for index in range(GRAPHS)]
    yield from life(f"{GRAPHS} graphs of {KERNELS} kernels and more", player, lengths)
    with settled(player, device):
        yield "settled"


def life(
    name: str, player: Player, others: Sequence[tuple[Body, int]]
) -> Iterator[str]:
    """Make, launch and close other graphs.

    Args:
        name: what to call them.
        player: makes them.
        others: their bodies and passes.
    """
    made = [player.capture(*each) for each in others]
    yield f"{name}: made"
    for each in made:
        each.launch()
    player.wait()
    yield f"{name}: launched"
    for each in made:
        each.close()
    yield f"{name}: closed"


def microseconds(player: Player, graph: Replay) -> float:
    """Median time of a pass."""
    return median(player.time([graph] * LAUNCHES).durations_ns()) / 1e3 / PASSES


def show(title: str, problem: Problem, *, is_hot: bool) -> None:
    """Print a table."""
    player = player_for(problem.device)
    graphs = {
        name: player.capture(body, PASSES)
        for name, body in bodies_of(problem, is_hot=is_hot).items()
    }
    for graph in graphs.values():
        graph.launch()
    player.wait()
    print(f"{title:44}" + "".join(f"{name:>12}" for name in graphs), flush=True)
    for state in beside(player, problem.device):
        times = (microseconds(player, graph) for graph in graphs.values())
        print(f"{state:44}" + "".join(f"{each:12.2f}" for each in times), flush=True)
    print()
    for graph in graphs.values():
        graph.close()


def main() -> None:
    """Time passes of other data, then passes of the same."""
    device = resolve("cuda")
    model = preset("qwen3-30b-a3b")
    spec = LayerSpec(model=model, draft_tokens=5, tp=RANKS, shard_shaped=True)
    options = ProblemOptions(passes=PASSES, steps=1, device=str(device))
    problem = make_problem(spec, options)
    show("weights of every pass its own", problem, is_hot=False)
    show("weights of all passes the same", problem, is_hot=True)


if __name__ == "__main__":
    ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    ).parse_args()
    try:
        main()
    except LayerscopeError as error:
        sys.exit(str(error))
