"""Times every candidate of every kernel in the chain, with stock PDL, on a GPU.

Usage: ``python backends/standard/benchmarks/selection.py [--model PRESET]
[--weights DTYPE] [--tp N] [--draft-tokens N] [ROLE ...]``. One kernel at a time is run
by each of its candidates, all others as planned. Each layer is captured into a graph of
eight passes; the median of 50 launches is printed, in microseconds a pass, and below
it the lines for selection.toml of candidates that are faster than what is planned.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

import torch

from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.backend import make_workshop
from layerscope_standard.layer import make_layer
from layerscope_standard.selection import (
    CUBLASLT,
    OWN,
    PRODUCTS,
    Choice,
    Selection,
    Shape,
)
from layerscope_standard.workshop import Workshop

PASSES: Final = 8
LAUNCHES: Final = 50
GAIN: Final = 0.005
"""Share of the layer that a candidate must save to be written down."""

OPTIONS: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    **{role: {"splits": (1, 2, 3, 4, 5, 6, 8), "tiles": (2,)} for role in PRODUCTS},
    "attention": {"tiles": (1, 2, 3, 4, 5, 6, 8, 9)},
    "gate_up": {"tiles": (2,)},
    "down": {"parts": (1, 2, 3, 4)},
}
"""How the own kernel of a role may be cut."""


class Asked(Selection):
    """An empty table that notes which shapes it was asked for."""

    def choose(self, role: str, shape: Shape) -> Choice:
        """What runs `role`, and note its shape."""
        shapes[role] = shape
        return super().choose(role, shape)


shapes: Final[dict[str, Shape]] = {}
"""Of every role, as the layer asked for it last."""


def candidates(role: str, spec: LayerSpec) -> Iterator[Choice]:
    """All ways to run a kernel but the planned one."""
    is_plain = spec.weight_dtype is not DType.FLOAT8_E4M3 or role == "router"
    if role in PRODUCTS and is_plain:
        yield Choice(CUBLASLT)
    for option, values in OPTIONS[role].items():
        for value in values:
            yield Choice(OWN, {option: value})


def workshop_for(problem: Problem, role: str, choice: Choice | None) -> Workshop:
    """One whose table chooses `choice` for `role`, and nothing else."""
    table = Asked()
    selection = table if choice is None else table.overridden(role, choice)
    return replace(make_workshop(problem.device, "stock"), selection=selection)


def microseconds(problem: Problem, workshop: Workshop) -> float:
    """Median time of a pass in a graph of all passes."""
    step = make_layer(problem, workshop).step

    def play() -> None:
        for index in range(PASSES):
            for region in problem.spec.regions:
                step.run(region, index)

    play()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        play()
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


def line(role: str, choice: Choice) -> str:
    """A table of selection.toml."""

    def inline(table: Shape) -> str:
        fields = (
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
            for name, value in table.items()
        )
        return f"{{ {', '.join(fields)} }}"

    rows = [
        "[[choice]]",
        f'role = "{role}"',
        f"shape = {inline(shapes[role])}",
        f'candidate = "{choice.candidate}"',
    ]
    if choice.options:
        rows.append(f"options = {inline(choice.options)}")
    return "\n".join(rows)


def measure(problem: Problem, roles: list[str]) -> None:
    """Print the times of all candidates, and the lines that are worth writing down."""
    planned = microseconds(problem, workshop_for(problem, "", None))
    print(f"{'planned':28} {planned:8.2f}", flush=True)
    lines = []
    for role in roles:
        if role not in shapes:
            continue
        best, least = None, planned * (1 - GAIN)
        for choice in candidates(role, problem.spec):
            took = microseconds(problem, workshop_for(problem, role, choice))
            options = " ".join(f"{k}={v}" for k, v in choice.options.items())
            name = f"{role} {choice.candidate} {options}"
            print(f"{name:28} {took:8.2f}  {took - planned:+7.2f}", flush=True)
            if took < least:
                best, least = choice, took
        if best is not None:
            lines.append(line(role, best))
    print("\n\n".join(lines))


def main() -> None:
    """Time the roles that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("roles", nargs="*", default=list(OPTIONS), metavar="ROLE")
    parser.add_argument("--model", default="qwen3-30b-a3b")
    parser.add_argument("--weights", type=DType, default=DType.BFLOAT16)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--draft-tokens", type=int, default=5)
    flags = parser.parse_args()
    spec = LayerSpec(
        model=preset(flags.model),
        weight_dtype=flags.weights,
        draft_tokens=flags.draft_tokens,
        tp=flags.tp,
        shard_shaped=flags.tp > 1,
    )
    options = ProblemOptions(passes=PASSES, steps=1, device="cuda")
    measure(make_problem(spec, options), flags.roles)


if __name__ == "__main__":
    main()
