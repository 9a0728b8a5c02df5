"""What a region costs where it is taken out of the graph, without a profiler.

On the serial twin this checks the shares, for there nothing else fills the time that
the region leaves. On the captured graph it is a marginal: what the pass loses of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate, independent_difference
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.verdicts import pair_rounds
from layerscope.experiment import ALL, CAPTURED, SERIAL, Experiment
from layerscope.run_header import DisabledCost, RunHeader, Trial

KNOCKOUT: Final = "knockout"
"""The phase of the rounds that time regions taken out, beside the whole graphs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockOut:
    """A region of an arm, by what a pass takes with it and without; ns a pass."""

    region: str

    serial: Estimate | None
    """On the serial twin; None where that was not measured."""

    captured: Estimate | None
    """On the graph as it was captured; likewise."""

    nodes: float
    """Nodes a pass that were disabled."""

    disabled_ns: float
    """What disabled nodes cost a pass by themselves; it is in both estimates."""


def knock_outs(
    header: RunHeader, times: pl.DataFrame, arm: str
) -> tuple[KnockOut, ...]:
    """Every region of `arm` that was taken out, in the order in which it was asked.

    The cost of a region is ``whole - (without - disabled)``: the time of a pass without
    the region still has its disabled nodes in it, of which `disabled` is calibrated
    (see `disabled_cost`). The difference is paired by round.

    An arm whose captured graph is serial already has one graph: what was measured of it
    stands in both columns. Where the rounds lack the whole serial twin, it is taken
    through the captured graph: ``(captured - without) - (captured - serial)``, the
    latter of the anchors, errors taken as independent.

    Args:
        header: of the run.
        times: `pass_times` of the run.
        arm: which one.
    """
    own = [trial for trial in header.trials if trial.arm == arm]
    measured = {trial.experiment: trial for trial in own if trial.outcome == "measured"}
    is_serial = any(
        trial.experiment == SERIAL and trial.outcome == "same" for trial in own
    )
    regions = dict.fromkeys(trial.experiment.without for trial in measured.values())
    found = []
    for region in filter(None, regions):
        on_captured = measured.get(Experiment(without=region))
        on_serial = measured.get(Experiment(serial=ALL, without=region))
        if is_serial:
            on_captured = on_serial = on_captured or on_serial
        trial = on_captured or on_serial
        if trial is not None:
            nodes = trial.nodes_disabled / header.study.passes
            cost_ns = disabled_cost(header.disabled_costs, nodes)
            whole = CAPTURED if is_serial else SERIAL.name
            found.append(
                KnockOut(
                    region=region,
                    serial=_cost(times, on_serial, whole, cost_ns),
                    captured=_cost(times, on_captured, CAPTURED, cost_ns),
                    nodes=nodes,
                    disabled_ns=cost_ns,
                )
            )
    return tuple(found)


def disabled_cost(costs: Sequence[DisabledCost], nodes: float) -> float:
    """What so many disabled nodes in a row cost, all of them together, in ns.

    Straight lines between the calibrated counts, the first from no cost of no nodes;
    beyond the largest, the line through the two largest goes on.

    Args:
        costs: calibrated, by nodes, ascending; of none, the cost is 0.
        nodes: how many.
    """
    if not costs:
        return 0.0
    points = [(0.0, 0.0), *((cost.nodes, cost.cost_ns) for cost in costs)]
    inner = range(1, len(points))
    place = next((i for i in inner if points[i][0] >= nodes), len(points) - 1)
    (low, low_ns), (high, high_ns) = points[place - 1], points[place]
    return low_ns + (high_ns - low_ns) * (nodes - low) / (high - low)


def _cost(
    times: pl.DataFrame, trial: Trial | None, whole: str, disabled_ns: float
) -> Estimate | None:
    """The cost of a region by one experiment; None where no round shows it."""
    if trial is None:
        return None
    without, own = trial.experiment.name, times.filter(pl.col("arm") == trial.arm)
    found = _difference(own, KNOCKOUT, without, whole)
    if not found.samples and whole == SERIAL.name:
        found = independent_difference(
            _difference(own, KNOCKOUT, without, CAPTURED),
            _difference(own, ANCHOR, SERIAL.name, CAPTURED),
        )
    if not found.samples:
        return None
    return replace(
        found,
        value=found.value + disabled_ns,
        low=found.low + disabled_ns,
        high=found.high + disabled_ns,
    )


def _difference(times: pl.DataFrame, phase: str, base: str, other: str) -> Estimate:
    """`other` minus `base`, two graphs of the one arm that `times` is of."""
    graphs = times.filter(pl.col("phase") == phase).select(
        "capture", "round", "pass_ns", arm="experiment"
    )
    return estimate(pair_rounds(graphs, base, other), "change_ns")
