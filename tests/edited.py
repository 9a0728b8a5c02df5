"""The hand-made run of `handmade` with experiments: still without any noise.

==============================  =========  ========
a pass, in ns                   reference  fused
==============================  =========  ========
captured                           40,000    30,000
serial twin                      the same    34,000
captured, without moe              28,000    22,000
serial twin, without moe         the same    24,500
==============================  =========  ========

A disabled node costs 300 ns. Kernels of the serial twin of `fused` take as long as
those of its captured graph, and none overlaps.
"""

from dataclasses import replace
from typing import Any

import polars as pl

from layerscope.experiment import ALL, SERIAL, Experiment
from layerscope.run import Run
from layerscope.run_header import Bound, DisabledCost, ReadCost, Trial
from layerscope.schema import SAMPLES
from tests import handmade

WITHOUT = Experiment(without="moe")
SERIAL_WITHOUT = Experiment(serial=ALL, without="moe")

TRIALS = [
    Trial(arm="reference", experiment=SERIAL, outcome="same"),
    Trial(arm="fused", experiment=SERIAL, outcome="measured", edges_changed=71),
    Trial(arm="reference", experiment=WITHOUT, outcome="measured", nodes_disabled=24),
    Trial(arm="fused", experiment=WITHOUT, outcome="measured", nodes_disabled=24),
    Trial(
        arm="fused", experiment=SERIAL_WITHOUT, outcome="measured", nodes_disabled=24
    ),
    Trial(
        arm="fused",
        experiment=Experiment(without="attention"),
        outcome="refused",
        reason="its backend does not declare it skippable",
    ),
]
DISABLED = [DisabledCost(nodes=1, cost_ns=300), DisabledCost(nodes=4, cost_ns=1_100)]
READS = [
    ReadCost(bytes=1_000_000, duration_ns=2_000),
    ReadCost(bytes=4_000_000, duration_ns=4_000),
]
BOUNDS = [
    Bound(
        arm="", name=name, pass_ns=pass_ns, low_ns=pass_ns - 100, high_ns=pass_ns + 100,
        kernels=3, bytes=6_000_000,
    )
    for name, pass_ns in (
        ("no PDL", 20_000),
        ("legal early start", 12_000),
        ("one read", 8_000),
    )
]  # fmt: skip

ANCHORS = {("fused", SERIAL.name): 34_000}
KNOCKED = {
    ("reference", "captured"): 40_000,
    ("fused", "captured"): 30_000,
    ("reference", WITHOUT.name): 28_000,
    ("fused", WITHOUT.name): 22_000,
    ("fused", SERIAL_WITHOUT.name): 24_500,
}
"""A pass of every graph that is not in `handmade`, or is timed again, by phase."""

SERIAL_CHAIN = (
    ("attention", "attend", 0, 15_000),
    ("o_proj_all_reduce", "project", 16_000, 5_000),
    ("moe", "experts", 22_000, 10_000),
)
SERIAL_PERIOD_NS = 34_000


def samples() -> pl.DataFrame:
    """Those of `handmade`, and one replay of every graph and length a round."""
    first = handmade.samples(("anchor",)).row(0, named=True)
    rows = [
        first
        | {"phase": phase, "arm": arm, "experiment": experiment, "capture": capture}
        | {"round": round_, "position": position, "passes": passes}
        | {"duration_ns": handmade.LAUNCH_NS + passes * pass_ns}
        for phase, graphs in (("anchor", ANCHORS), ("knockout", KNOCKED))
        for capture in range(handmade.CAPTURES)
        for round_ in range(handmade.ROUNDS)
        for position, ((arm, experiment), pass_ns) in enumerate(graphs.items())
        for passes in handmade.LENGTHS
    ]
    return pl.concat([handmade.samples(), pl.DataFrame(rows, schema=SAMPLES)])


def kernels() -> pl.DataFrame:
    """Those of `handmade`, and the serial twin of `fused` recorded as often."""
    place = pl.col("node") % len(SERIAL_CHAIN)
    starts = pl.Series([start for _, _, start, _ in SERIAL_CHAIN])
    twin = (
        handmade.kernels()
        .filter(pl.col("arm") == "fused")
        .with_columns(
            experiment=pl.lit(SERIAL.name),
            pass_start_ns=pl.col("pass_index") * SERIAL_PERIOD_NS,
            start_ns=place.replace_strict(dict(enumerate(starts))),
        )
    )
    return pl.concat([handmade.kernels(), twin])


def run(**changes: Any) -> Run:  # noqa: ANN401 (any field of the header)
    """The whole run in memory, with `changes` to its header."""
    values = {
        "trials": TRIALS,
        "disabled_costs": DISABLED,
        "reads": READS,
        "bounds": BOUNDS,
        "programmatic": {"fused": [1, 4, 7, 10]},
    }
    return replace(
        handmade.run(**(values | changes)), samples=samples(), kernels=kernels()
    )
