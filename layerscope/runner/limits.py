"""Measures what order, bytes and dependencies alone cost on this machine.

Skeletons of chains (`graphs.skeleton`) are replayed cold and timed as anchors are. Each
is tried with several grids, and the fastest is the limit, for a limit is the least that
was ever needed.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple, TypeAlias, TypeVar

import torch

from layerscope.analyze.statistics import Estimate
from layerscope.errors import MeasurementError
from layerscope.graphs.memory import free_bytes, out_of_memory
from layerscope.graphs.players import has_cuda_bindings, player_for
from layerscope.graphs.settling import EARLY_START
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
from layerscope.regions import Region
from layerscope.run_header import Bound, ReadCost
from layerscope.runner.limit_times import Effort, Timed, fastest
from layerscope.study import ANCHOR_LENGTHS, lengths_up_to
from layerscope.units import format_bytes

Key = TypeVar("Key", bound=Hashable)
Chain: TypeAlias = Sequence[Stage]

READ_BYTES: Final = tuple(1 << power for power in range(20, 30))
"""Sizes of the curve of cold reads: 1 MiB to 512 MiB."""

STANDARD: Final = ""
"""The chain of no arm, as `Bound.arm` names it."""

_MEMORY_PART: Final = 0.9
"""Of what is free, how much a skeleton's memory may take."""

_SHORT_BYTES: Final = 8 << 20
_LONGER: Final = 4
"""Replays of reads up to `_SHORT_BYTES`, of few µs each, are so many times longer."""

_DRAWN: Final = (24, 32)
"""Passes and steps over which the mean number of experts is taken, as in a study."""


def measure_limits(
    spec: LayerSpec,
    distinct: int | None,
    device: torch.device,
    effort: Effort | None = None,
    arms: Mapping[str, Chain] | None = None,
) -> tuple[tuple[Bound, ...], tuple[ReadCost, ...]]:
    """The limits of a layer here, and the time of cold reads by size.

    Args:
        spec: the layer and its workload.
        distinct: distinct experts of a pass, such as `mean_experts`; None if dense.
        device: a CUDA device, which must be the current.
        effort: how often.
        arms: the arms' own chains by name, measured beside the standard one.

    Returns:
        What the header of a run holds as ``bounds`` and as ``reads``.

    Raises:
        MeasurementError: the device cannot run the kernels, or lacks memory.
        ValueError: `distinct` does not fit the family.
    """
    chains: dict[str, Chain] = {STANDARD: standard_chain(spec, distinct)}
    chains |= arms or {}
    bounds = measure_bounds(chains, activation_bytes(spec), device, effort)
    return bounds, measure_reads(device, effort)


def measure_bounds(
    chains: Mapping[str, Chain],
    handed_bytes: int,
    device: torch.device,
    effort: Effort | None = None,
) -> tuple[Bound, ...]:
    """The time of a pass of every chain, in every variant that the device can run.

    Args:
        chains: the kernels of a pass, by what `Bound.arm` says.
        handed_bytes: activations that each kernel hands to the next.
        device: a CUDA device, which must be the current.
        effort: how often.

    Raises:
        MeasurementError: the device cannot run the kernels, or lacks memory.
    """
    check_device(device)
    largest = max(1, *(offsets_of(chain)[1] for chain in chains.values()))
    lengths = _lengths_that_fit(largest, device)
    variants = _variants(device)
    bodies = {
        ((arm, variant), most): _Plan(chain, variant, most, lengths)
        for (arm, chain), variant, most in product(chains.items(), variants, GRIDS)
    }
    with _borrowed_memory():
        found = _fastest(bodies, handed_bytes, device, effort)
    return tuple(
        Bound(
            arm=arm,
            name=variant.value,
            pass_ns=time.value,
            low_ns=time.low,
            high_ns=time.high,
            kernels=len(stages_of(variant, chains[arm])),
            bytes=sum(stage.bytes for stage in chains[arm]),
        )
        for (arm, variant), time in found.items()
    )


def measure_reads(
    device: torch.device, effort: Effort | None = None
) -> tuple[ReadCost, ...]:
    """The time of one kernel that reads cold memory, by bytes, its launch included.

    Sizes of which the memory does not hold enough copies are left out.

    Args:
        device: a CUDA device, which must be the current.
        effort: how often.

    Raises:
        MeasurementError: the device cannot run the kernels, or lacks memory.
    """
    check_device(device)
    lengths = {size: _read_lengths(size) for size in READ_BYTES}
    needed = {size: max(lengths[size]) * size for size in READ_BYTES}
    room = _room(device)
    sizes = [size for size in READ_BYTES if needed[size] <= room]
    if not sizes:
        raise MeasurementError(_no_room(min(needed.values()), room))
    bodies = {
        (size, most): _Plan(_one_read(size), Variant.NO_PDL, most, lengths[size])
        for size, most in product(sizes, GRIDS)
    }
    effort = replace(effort or Effort(), phase="reads")
    with _borrowed_memory():
        found = _fastest(bodies, 0, device, effort)
    return tuple(ReadCost(bytes=size, duration_ns=found[size].value) for size in sizes)


def check_device(device: torch.device) -> None:
    """Refuse a device on which there are no kernels of our own.

    Raises:
        MeasurementError: it is none of NVIDIA's, or its bindings are missing.
    """
    if device.type != "cuda" or torch.version.cuda is None:
        msg = "limits are measured on an NVIDIA GPU, and this is none; run it on one"
        raise MeasurementError(msg)
    if not has_cuda_bindings(device):
        msg = "limits need cuda-bindings; pip install 'layerscope[cuda]'"
        raise MeasurementError(msg)


def mean_experts(spec: LayerSpec, seed: int = 0) -> int | None:
    """Distinct experts of a pass, the mean over a study's draws; None if dense."""
    if not spec.model.experts:
        return None
    passes, steps = _DRAWN
    drawn = distinct_experts(expert_plan(spec, passes, steps, seed))
    return round(sum(map(sum, drawn)) / (passes * steps))


class _Plan(NamedTuple):
    """What is replayed of a skeleton, and at which lengths."""

    chain: Chain
    variant: Variant
    most: int | None
    lengths: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Memory that the longest replay reads."""
        return max(self.lengths) * offsets_of(self.chain)[1]


def _fastest(
    plans: Mapping[tuple[Key, int | None], _Plan],
    handed_bytes: int,
    device: torch.device,
    effort: Effort | None,
) -> dict[Key, Estimate]:
    from layerscope.graphs.stage_kernels import (  # noqa: PLC0415 (needs bindings)
        Skeleton,
    )

    cold_bytes = max(plan.bytes for plan in plans.values())
    skeleton = Skeleton(device, cold_bytes, handed_bytes)
    bodies = {
        key: Timed(skeleton.body(plan.chain, plan.variant, plan.most), plan.lengths)
        for key, plan in plans.items()
    }
    return fastest(bodies, player_for(device), device, effort or Effort())


def _variants(device: torch.device) -> tuple[Variant, ...]:
    if torch.cuda.get_device_capability(device) >= EARLY_START:
        return tuple(Variant)
    return (Variant.NO_PDL, Variant.ONE_READ)


def _one_read(size: int) -> tuple[Stage, ...]:
    return (Stage(name="read", region=Region.OTHER, bytes=size),)


def _read_lengths(size: int) -> tuple[int, ...]:
    longer = _LONGER if size <= _SHORT_BYTES else 1
    return tuple(longer * length for length in ANCHOR_LENGTHS)


def _lengths_that_fit(pass_bytes: int, device: torch.device) -> tuple[int, ...]:
    """The usual lengths, or shorter ones where the memory holds fewer passes.

    Raises:
        MeasurementError: it holds too few.
    """
    room = _room(device)
    passes = min(max(ANCHOR_LENGTHS), room // pass_bytes)
    if passes < len(ANCHOR_LENGTHS):
        raise MeasurementError(_no_room(len(ANCHOR_LENGTHS) * pass_bytes, room))
    return lengths_up_to(passes, ANCHOR_LENGTHS)


def _room(device: torch.device) -> int:
    return int(_MEMORY_PART * free_bytes(device))


def _no_room(needed: int, room: int) -> str:
    return (
        f"limits need {format_bytes(needed)} of GPU memory beside what is in use, and "
        f"there are {format_bytes(room)}; use --tp N --shard-shaped"
    )


@contextmanager
def _borrowed_memory() -> Iterator[None]:
    """Give memory that the block no longer refers to back to the device.

    Raises:
        MeasurementError: there was not enough.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MeasurementError(out_of_memory(error)) from error
    finally:
        torch.cuda.empty_cache()
