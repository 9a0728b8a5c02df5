"""The limits of a study's own layer and arms, measured after everything else."""

from typing import Final

import polars as pl

from layerscope.errors import MeasurementError
from layerscope.experiment import CAPTURED
from layerscope.graphs.players import has_cuda_bindings
from layerscope.graphs.skeleton import Stage
from layerscope.layers.spec import LayerSpec
from layerscope.runner.arm_chains import chain_of
from layerscope.runner.bench import Bench
from layerscope.runner.launches import Note
from layerscope.runner.limit_times import Effort
from layerscope.runner.limits import measure_limits

_ROUNDS: Final = 5
"""Of every capture: fewer than of `layerscope limits`, for people wait for a study."""


def bound(bench: Bench, spec: LayerSpec, note: Note) -> None:
    """Note in the header what order, bytes and dependencies alone would cost here.

    For the standard chain of the layer, and for every arm's own kernels. A device on
    which that cannot be measured is a warning: nothing else depends on it.

    Args:
        bench: whose phases have run.
        spec: the layer.
        note: of `watched_launches`.
    """
    header, device = bench.writer.header, bench.workload.feed.device
    if not has_cuda_bindings(device):
        return
    if bench.is_cut:
        header.warnings.append("limits were not measured: the time budget had ended")
        return
    effort = Effort(
        rounds=_ROUNDS,
        seed=bench.study.seed,
        progress=bench.progress,
        note=note,
    )
    try:
        with bench.timed("limits"):
            distinct = mean_distinct(header.distinct_experts)
            chains = _arm_chains(bench)
            bounds, reads = measure_limits(spec, distinct, device, effort, chains)
    except MeasurementError as error:
        header.warnings.append(f"limits were not measured: {error}")
        return
    header.bounds, header.reads = list(bounds), list(reads)


def mean_distinct(counts: list[list[int]]) -> int | None:
    """Distinct experts of a pass, the mean over what was drawn; None if dense."""
    drawn = [count for row in counts for count in row]
    return round(sum(drawn) / len(drawn)) if drawn else None


def _arm_chains(bench: Bench) -> dict[str, tuple[Stage, ...]]:
    """The kernels of every arm that was recorded and is compared with others."""
    header, kernels = bench.writer.header, bench.writer.kernels
    chains = {}
    for arm in (arm.name for arm in bench.study.arms):
        required = {row.region: row.required for row in header.bytes if row.arm == arm}
        mine = kernels.filter(pl.col("arm") == arm, pl.col("experiment") == CAPTURED)
        chain = chain_of(mine, required)
        if chain:
            chains[arm] = chain
    return chains
