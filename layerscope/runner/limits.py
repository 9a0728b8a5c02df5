"""Measures what order, bytes and dependencies alone cost on this machine.

Skeletons of chains (`graphs.skeleton`) are captured, replayed cold and timed as anchors
are: three lengths, the slope, fresh captures, random order. Each is tried with several
grids, and the fastest is the limit, since a limit is the least that was ever needed.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeVar

import polars as pl
import torch

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.statistics import estimate, pass_times
from layerscope.errors import MeasurementError
from layerscope.graphs.memory import free_bytes
from layerscope.graphs.players import has_cuda_bindings, player_for
from layerscope.graphs.replay import Body, Player
from layerscope.graphs.skeleton import (
    GRIDS,
    Stage,
    Variant,
    offsets_of,
    stages_of,
    standard_chain,
)
from layerscope.layers.routing import distinct_experts, expert_plan
from layerscope.layers.spec import LayerSpec
from layerscope.layers.tensors import activation_bytes
from layerscope.progress import Progress, SilentProgress
from layerscope.regions import Region
from layerscope.run_header import Bound, ReadCost
from layerscope.study import ANCHOR_LENGTHS, lengths_up_to

Key = TypeVar("Key")

READ_BYTES: Final = tuple(1 << power for power in range(20, 30))
"""Sizes of the curve of cold reads: 1 MiB to 512 MiB."""

STANDARD: Final = ""
"""The chain of no arm, as `run_header.Bound` names it."""

_MEMORY_PART: Final = 0.9
"""Of what is free, how much the memory of a skeleton may take."""

_SMALL_BYTES: Final = 8 << 20
_LONGER: Final = 4
"""Reads up to `_SMALL_BYTES` take so little that replays have so many times more."""

_WARM_LAUNCHES: Final = 2
_EARLY_START: Final = (9, 0)
"""Compute capability from which kernels can start before the one before has ended."""

_DRAWN_PASSES: Final = 24
_DRAWN_STEPS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOptions:
    """How often limits are measured, and how much memory they may use."""

    captures: int = 3
    rounds: int = 8
    """Of every capture; in each, every skeleton is replayed at every length."""

    seed: int = 0
    """Fixes the order of the replays."""

    progress: Progress = field(default_factory=SilentProgress)


@dataclass(frozen=True, slots=True)
class Timed:
    """A body and the lengths at which it is replayed."""

    body: Body
    lengths: tuple[int, ...]


def measure_limits(
    spec: LayerSpec,
    distinct_experts: int | None,
    device: torch.device,
    options: LimitsOptions | None = None,
    arms: Mapping[str, Sequence[Stage]] | None = None,
) -> tuple[tuple[Bound, ...], tuple[ReadCost, ...]]:
    """The limits of a layer here, and the time of cold reads by size.

    Args:
        spec: the layer and its workload.
        distinct_experts: of a pass, such as `mean_experts` of `spec`; None if dense.
        device: a CUDA device, which must be the current.
        options: how often.
        arms: chains of arms by name, beside the standard one.

    Returns:
        What a run's header holds as ``bounds`` and ``reads``.

    Raises:
        MeasurementError: the device cannot run the kernels, or lacks memory.
        ValueError: `distinct_experts` does not fit the family.
    """
    chains = {STANDARD: standard_chain(spec, distinct_experts), **(arms or {})}
    bounds = measure_bounds(chains, activation_bytes(spec), device, options)
    return bounds, measure_reads(device, options)


def measure_bounds(
    chains: Mapping[str, Sequence[Stage]],
    handed_bytes: int,
    device: torch.device,
    options: LimitsOptions | None = None,
) -> tuple[Bound, ...]:
    """The time of a pass of every chain in every variant that the device can run.

    Args:
        chains: the kernels of a pass, by what `Bound.arm` is to say.
        handed_bytes: activations that each kernel hands to the next.
        device: a CUDA device, which must be the current.
        options: how often.

    Raises:
        MeasurementError: the device cannot run the kernels, or lacks memory.
    """
    options = options or LimitsOptions()
    _check_device(device)
    strides = {arm: offsets_of(chain)[1] for arm, chain in chains.items()}
    passes = _passes_that_fit(max(strides.values()), device)
    lengths = lengths_up_to(passes, ANCHOR_LENGTHS)

    def timed(skeleton: "Skeleton") -> dict[tuple[str, Variant, int | None], Timed]:
        return {
            (arm, variant, most): Timed(
                skeleton.body(chains[arm], variant, most), lengths
            )
            for arm, variant, most in product(chains, _variants(device), GRIDS)
        }

    cold_bytes = passes * max(strides.values())
    found = _fastest(_measure(device, (cold_bytes, handed_bytes), timed, options))
    return tuple(
        _bound(arm, variant, chains[arm], found[arm, variant])
        for arm, variant in product(chains, _variants(device))
    )
