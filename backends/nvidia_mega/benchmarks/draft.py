"""Times five drafted tokens, a launch a token against one launch for all, on a GPU.

Usage: ``python backends/nvidia_mega/benchmarks/draft.py``. The drafts of Qwen3-30B-A3B,
whole and as one rank of two, four and eight has them, in both types of weights. Sixteen
drafts are captured into a graph; the median of 30 launches is printed, in microseconds
a draft, and whether both chose the same tokens.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from statistics import median
from typing import Final

import torch

from layerscope.errors import LayerscopeError
from layerscope.graphs.device import resolve
from layerscope.layers.draft import DraftOptions, DraftProblem, make_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.plugin import DraftStep, Waits
from layerscope_nvidia_mega.draft import BuiltDraft, Room
from layerscope_standard.backend import make_workshop
from layerscope_standard.draft import BuiltDraft as StandardDraft

PASSES: Final = 16
LAUNCHES: Final = 30
RANKS: Final = (1, 2, 4, 8)
VOCABULARY: Final = 151_936


def captured(step: DraftStep) -> torch.cuda.CUDAGraph:
    """A graph of all passes, which have run once."""

    def play() -> None:
        for index in range(PASSES):
            step.run(index)

    play()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        play()
    return graph


def span_ms(graph: torch.cuda.CUDAGraph) -> float:
    """Time of one launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    found_ms: float = begin.elapsed_time(end)
    return found_ms


def microseconds(graphs: list[torch.cuda.CUDAGraph]) -> list[float]:
    """Median time of a draft in each, launched in turns once all are there.

    A graph that is made can change how fast all replay; see `replay_speeds`.
    """
    rounds = [[span_ms(graph) for graph in graphs] for _ in range(LAUNCHES)]
    return [median(spans) * 1e3 / PASSES for spans in zip(*rounds, strict=True)]


def steps(problem: DraftProblem) -> list[DraftStep]:
    """A launch a token, and one for all."""
    device = problem.device
    waits, room = Waits.on(device), Room.on(device)
    built = (
        StandardDraft(problem, make_workshop(device, "stock")),
        BuiltDraft(problem, make_workshop(device, "stock"), waits, room),
    )
    return [step for each in built if (step := each.plan(problem.spec)) is not None]


def main() -> None:
    """Time every draft."""
    resolve("cuda")
    for weights in (DType.BFLOAT16, DType.FLOAT8_E4M3):
        for ranks in RANKS:
            spec = DraftSpec(
                model="qwen3-30b-a3b",
                vocab_size=VOCABULARY,
                tp=ranks,
                shard_shaped=ranks > 1,
                weight_dtype=weights,
            )
            options = DraftOptions(passes=PASSES, steps=2, device="cuda")
            problem = make_draft(spec, options)
            built = steps(problem)  # has the memory of the graphs
            graphs, tokens = [captured(step) for step in built], []
            for graph in graphs:
                for each in problem.passes:
                    each.chosen.fill_(-1)
                graph.replay()
                torch.cuda.synchronize()
                tokens.append(torch.stack([each.chosen for each in problem.passes]))
            times_us = microseconds(graphs)
            is_same = all(torch.equal(tokens[0], each) for each in tokens)
            told = "  ".join(f"{value:7.1f}" for value in times_us)
            print(f"{weights.value:12} --tp {ranks}  {told}  same tokens: {is_same}")


if __name__ == "__main__":
    ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    ).parse_args()
    try:
        main()
    except LayerscopeError as error:
        sys.exit(str(error))
