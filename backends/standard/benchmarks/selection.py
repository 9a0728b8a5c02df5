"""Times every candidate of every kernel in the chain, with stock PDL, on a GPU.

Usage: ``python backends/standard/benchmarks/selection.py [--model PRESET]
[--weights DTYPE] [--tp N] [--draft-tokens N] [--candidates NAME,...] [ROLE ...]``. One
kernel at a time is run by each of its candidates, all others as planned. Each layer is
captured into a graph of eight passes; the median of 50 launches is printed, in
microseconds a pass, and the difference from the planned layer, launched in turns
with it: a graph that is made can change how fast all graphs replay (`replay_speeds.py`
of nvidia_mega), so times from before and after do not compare. The plan itself is built
several times first: what its builds differ by, no candidate is chosen for. At the end
all that are faster are timed together, and their lines for selection.toml are printed.
A library that is not installed is left out, which is said.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise, product
from statistics import median
from typing import Final, TypeAlias

import torch

from layerscope.errors import BackendError, LayerscopeError
from layerscope.graphs.device import resolve
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.backend import BACKEND, make_workshop
from layerscope_standard.layer import LayerStep, make_layer
from layerscope_standard.selection import (
    CANDIDATES,
    CUBLASLT,
    FLASHINFER,
    OWN,
    REQUIREMENTS,
    TRITON,
    Choice,
    Selection,
    Shape,
)
from layerscope_standard.workshop import Workshop

PASSES: Final = 8
LAUNCHES: Final = 50
TURNS: Final = 3
BUILDS: Final = 5
"""Of the plan, beside the one that candidates are held against."""

GAIN: Final = 0.005
"""Share of the layer that a candidate must save at least to be written down."""

Trial: TypeAlias = Mapping[str, Choice]
"""What runs a role, and others that must change with it."""

Options: TypeAlias = Mapping[str, int]

PRODUCTS: Final = ("qkv", "o_proj", "router")

_PRODUCT_CUTS: Final = (
    *({"splits": each} for each in (1, 2, 3, 4, 5, 6, 8)),
    {"splits": 1, "depth": 8},
    {"tiles": 2},
)
OWN_OPTIONS: Final[Mapping[str, tuple[Options, ...]]] = {
    **dict.fromkeys(PRODUCTS, _PRODUCT_CUTS),
    "attention": tuple({"tiles": each} for each in (1, 2, 3, 4, 5, 6, 8, 9)),
    "gate_up": (
        {"tiles": 1},
        {"tiles": 1, "depth": 8},
        {"depth": 2},
        {"tiles": 4, "depth": 2},
    ),
    "down": (
        *({"parts": each} for each in (1, 2, 3, 4)),
        {"runs_on": 0},
        *({"runs_on": 1, "depth": each} for each in (2, 3, 4)),
    ),
}
"""How the own kernel of a role may be cut."""

_TILES: Final = ((16, 128), (16, 256), (32, 128), (64, 128))
"""Outputs and k of a program of Triton."""

_PRODUCT_TILES: Final[tuple[Options, ...]] = tuple(
    {"outputs": outputs, "k": k, "splits": splits}
    for (outputs, k), splits in product(_TILES, (1, 2, 4, 8))
)
_EXPERT_TILES: Final[tuple[Options, ...]] = tuple(
    {"outputs": outputs, "k": k, "warps": warps, "stages": stages}
    for (outputs, k), (warps, stages) in product(_TILES, ((4, 4), (8, 3)))
)
_WARPS: Final[tuple[Options, ...]] = tuple({"warps": each} for each in (4, 8, 16))
TRITON_OPTIONS: Final[Mapping[str, tuple[Options, ...]]] = {
    **dict.fromkeys(PRODUCTS, _PRODUCT_TILES),
    **dict.fromkeys(("gate_up", "down"), _EXPERT_TILES),
    **dict.fromkeys(("norm", "post_norm"), _WARPS),
}
"""How Triton's kernel of a role may be cut."""

_SCALED_K: Final = 128
"""The most of k that Triton takes at a time where weights are block-scaled."""


class Asked(Selection):
    """An empty table that notes which shapes it was asked for."""

    def choose(self, role: str, shape: Shape) -> Choice:
        """What runs `role`, and note its shape."""
        shapes[role] = shape
        return super().choose(role, shape)


shapes: Final[dict[str, Shape]] = {}
"""Of every role, as the layer asked for it last."""


def trials(role: str, spec: LayerSpec, names: list[str]) -> Iterator[Trial]:
    """All ways to run a kernel but the planned one, by the candidates `names`."""
    is_scaled = spec.weight_dtype is DType.FLOAT8_E4M3 and role != "router"
    known = [name for name in CANDIDATES[role] if name in names]
    if CUBLASLT in known and not is_scaled:
        yield {role: Choice(CUBLASLT)}
    if FLASHINFER in known:
        whole = {"o_proj": Choice(OWN, {"splits": 1})} if role == "post_norm" else {}
        yield {role: Choice(FLASHINFER), **whole}
    if OWN in known:
        yield from ({role: Choice(OWN, each)} for each in OWN_OPTIONS.get(role, ()))
    if TRITON in known:
        for each in TRITON_OPTIONS[role]:
            if not is_scaled or each.get("k", 0) <= _SCALED_K:
                yield {role: Choice(TRITON, each)}


def workshop_for(problem: Problem, trial: Trial) -> Workshop:
    """One whose table has the choices of `trial`, and nothing else."""
    selection: Selection = Asked()
    for role, choice in trial.items():
        selection = selection.overridden(role, choice)
    return replace(make_workshop(problem.device, "stock"), selection=selection)


@dataclass(frozen=True)
class Chain:
    """A layer in a graph of all passes."""

    graph: torch.cuda.CUDAGraph
    step: LayerStep
    """Has the memory and the kernels of the graph."""

    def microseconds(self) -> float:
        """Median time of a pass."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
        for _ in range(5):
            self.graph.replay()
        for event in events[:-1]:
            event.record()
            self.graph.replay()
        events[-1].record()
        torch.cuda.synchronize()
        spans_ms: list[float] = [a.elapsed_time(b) for a, b in pairwise(events)]
        return median(spans_ms) * 1e3 / PASSES


def chain_of(problem: Problem, trial: Trial) -> Chain:
    """The layer with the choices of `trial`, run and captured.

    Raises:
        BackendError: a kernel cannot be made, or the output of the first pass is wrong.
    """
    step = make_layer(problem, workshop_for(problem, trial)).step

    def play() -> None:
        for index in range(PASSES):
            for region in problem.spec.regions:
                step.run(region, index)

    problem.buffers[0].out.fill_(torch.nan)
    play()
    torch.cuda.synchronize()
    error = relative_error(problem.buffers[0].out, reference_output(problem, 0))
    if not error <= BACKEND.numerics.bfloat16:
        msg = f"wrong by {error:.1e}"
        raise BackendError(msg)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        play()
    return Chain(graph, step)


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


def name_of(role: str, choice: Choice) -> str:
    """One line of the table."""
    options = " ".join(f"{name}={value}" for name, value in choice.options.items())
    return f"{role} {choice.candidate} {options}"


@dataclass(frozen=True)
class Plan:
    """What candidates are held against."""

    problem: Problem
    chain: Chain
    least_gain: float
    """In microseconds a pass, that a candidate must save to be chosen."""


def make_plan(problem: Problem) -> Plan:
    """The layer as planned; prints what it takes, and what other builds of it do."""
    planned = chain_of(problem, {})
    took, most = planned.microseconds(), 0.0
    print(f"{'planned':48} {took:8.2f}", flush=True)
    for _ in range(BUILDS):
        again = chain_of(problem, {})
        gain = in_turns(planned, again)
        print(f"{'planned, built again':48} {again.microseconds():8.2f}  {-gain:+7.2f}")
        most = max(most, abs(gain))
    print(flush=True)
    return Plan(problem, planned, max(took * GAIN, most))


def best_of(plan: Plan, role: str, names: list[str]) -> Trial | None:
    """Print the times of all candidates of a role; the best, if it saves enough."""
    problem, planned = plan.problem, plan.chain
    best: Trial | None = None
    most = plan.least_gain
    for trial in trials(role, problem.spec, names):
        name = name_of(role, trial[role])
        try:
            chain = chain_of(problem, trial)
        except BackendError as error:
            print(f"{name:48} left out: {error}", flush=True)
            continue
        took, gain = chain.microseconds(), in_turns(planned, chain)
        print(f"{name:48} {took:8.2f}  {-gain:+7.2f}", flush=True)
        if gain > most:
            best, most = trial, gain
    print()
    return best


def in_turns(planned: Chain, other: Chain) -> float:
    """What `other` saves a pass, in microseconds, from launches in turns."""
    return median(planned.microseconds() - other.microseconds() for _ in range(TURNS))


def measure(problem: Problem, roles: list[str], names: list[str]) -> None:
    """Print the times of all candidates, and the lines that are worth writing down."""
    plan = make_plan(problem)
    chosen: dict[str, Choice] = {}
    for role in roles:
        best = best_of(plan, role, names) if role in shapes else None
        chosen.update(best or {})  # also what a role before it must then be run by
    if not chosen:
        print("nothing is faster than what is planned")
        return
    together = chain_of(problem, chosen)
    gain = in_turns(plan.chain, together)
    print(f"{'all of these together':48} {together.microseconds():8.2f}  {-gain:+7.2f}")
    print()
    print("\n\n".join(line(role, choice) for role, choice in chosen.items()))


def main() -> None:
    """Time the roles that are named, or all.

    Raises:
        LayerscopeError: there is no GPU, or no such model.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", nargs="*", default=list(CANDIDATES), metavar="ROLE")
    parser.add_argument("--model", default="qwen3-30b-a3b")
    parser.add_argument("--weights", type=DType, default=DType.BFLOAT16)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--draft-tokens", type=int, default=5)
    every = f"{OWN},{CUBLASLT},{TRITON},{FLASHINFER}"
    parser.add_argument("--candidates", default=every, metavar="NAME,...")
    flags = parser.parse_args()
    unknown = [role for role in flags.roles if role not in CANDIDATES]
    if unknown:
        parser.error(f"no role {', '.join(unknown)}; there are {', '.join(CANDIDATES)}")
    device = resolve("cuda")
    names: list[str] = flags.candidates.split(",")
    for name in [each for each in names if each in REQUIREMENTS]:
        if find_spec(name) is None:
            print(f"{name} is left out: pip install {REQUIREMENTS[name]}")
            names.remove(name)
    spec = LayerSpec(
        model=preset(flags.model),
        weight_dtype=flags.weights,
        draft_tokens=flags.draft_tokens,
        tp=flags.tp,
        shard_shaped=flags.tp > 1,
    )
    options = ProblemOptions(passes=PASSES, steps=1, device=str(device))
    measure(make_problem(spec, options), flags.roles, names)


if __name__ == "__main__":
    try:
        main()
    except LayerscopeError as error:
        sys.exit(str(error))
