"""A run of a backend whose two switches are told apart, without any noise.

==================  ========  ======  =======
arm                 captured  serial  kernels
==================  ========  ======  =======
paper all off       40,000    45,000  3
paper:b=off         38,000    45,000  3
paper:a=off         37,000    44,000  2
paper               34,000    44,000  2
paper (A/A)         34,010
==================  ========  ======  =======

``paper:b=off`` is ``a`` alone, and all but ``b``. Before ``route``, a delay of 0, 2, 5
and 10 µs makes of what ``a`` saves beside ``b`` 3, 4, 5 and 5 µs.
"""

from pathlib import Path
from typing import Any

import polars as pl

from layerscope.experiment import SERIAL, Experiment
from layerscope.run import Run
from layerscope.run_header import BitsCheck, RunHeader, Trial
from layerscope.schema import EDGES, KERNELS, SAMPLES
from layerscope.study import Arm, Study
from layerscope.switches import SwitchArms, SwitchKind, TakenApart
from tests import handmade

OFF, ONLY_A, ONLY_B, ON = "paper all off", "paper:b=off", "paper:a=off", "paper"
PASS_NS = {OFF: 40_000, ONLY_A: 38_000, ONLY_B: 37_000, ON: 34_000}
SERIAL_NS = {OFF: 45_000, ONLY_A: 45_000, ONLY_B: 44_000, ON: 44_000}
KERNELS_A_PASS = {OFF: 3, ONLY_A: 3, ONLY_B: 2, ON: 2}
SAVING_NS = {0: 3_000, 2_000: 4_000, 5_000: 5_000, 10_000: 5_000}
AGAIN = "paper (A/A)"
A = SwitchArms(
    name="a",
    only=ONLY_A,
    without=ONLY_B,
    kind=SwitchKind.OVERLAP,
    bitwise=True,
    delayed="/route",
)
B = SwitchArms(name="b", only=ONLY_B, without=ONLY_A, kind=SwitchKind.FUSION)
APART = TakenApart(backend="paper", off=OFF, on=ON, switches=(A, B))
DOSES = {dose: Experiment(delay="/route", delay_ns=dose) for dose in SAVING_NS}
CAPTURES, ROUNDS = 3, 2


def study() -> Study:
    """One arm, and those that tell its switches apart."""
    doses = tuple(DOSES.values())
    return Study(
        spec=handmade.study().spec,
        arms=(Arm(backend="paper"),),
        lengths=(8,),
        captures=CAPTURES,
        experiments=(SERIAL,),
        taken_apart=(APART,),
        switch_arms=(
            Arm(backend="paper", switches={"a": "off", "b": "off"}, label=OFF),
            Arm(backend="paper", switches={"b": "off"}),
            Arm(backend="paper", switches={"a": "off"}),
        ),
        switch_experiments={
            OFF: (SERIAL,),
            ONLY_A: (SERIAL,),
            ONLY_B: (SERIAL, *doses),
            ON: (SERIAL, *doses),
        },
    )


def header(**changes: Any) -> RunHeader:  # noqa: ANN401 (any field of the header)
    """Its header, with `changes` to its fields."""
    doses = [(arm, one) for arm in (ONLY_B, ON) for one in DOSES.values()]
    values: dict[str, Any] = {
        "study": study(),
        "status": "complete",
        "decisions": [],
        "builds": [],
        "numerics": [],
        "bytes": [],
        "trials": [
            *(measured(arm, SERIAL) for arm in PASS_NS),
            *(measured(arm, one) for arm, one in doses),
        ],
        "bits": [
            bits("a", OFF, ONLY_A),
            bits("a", ONLY_B, ON),
            bits("b", OFF, ONLY_B, is_equal=False),
            bits("b", ONLY_A, ON),
        ],
    }
    return handmade.header(**(values | changes))


def measured(arm: str, experiment: Experiment) -> Trial:
    """An experiment that was made."""
    return Trial(arm=arm, experiment=experiment, outcome="measured")


def bits(switch: str, off: str, on: str, *, is_equal: bool = True) -> BitsCheck:
    """What comparing two arms found."""
    return BitsCheck(backend="paper", switch=switch, off=off, on=on, is_equal=is_equal)


def graph(arm: str, experiment: Experiment, pass_ns: int) -> pl.DataFrame:
    """Samples of one graph, all alike."""
    rows = [
        {
            "phase": "anchor",
            "arm": arm,
            "experiment": experiment.name,
            "capture": capture,
            "round": round_,
            "position": 0,
            "passes": 8,
            "step": 0,
            "duration_ns": 8 * pass_ns,
        }
        for capture in range(CAPTURES)
        for round_ in range(ROUNDS)
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def samples() -> pl.DataFrame:
    """Of every graph that was timed."""
    captured = Experiment()
    return pl.concat(
        [
            *(graph(arm, captured, pass_ns) for arm, pass_ns in PASS_NS.items()),
            graph(AGAIN, captured, 34_010),
            *(graph(arm, SERIAL, pass_ns) for arm, pass_ns in SERIAL_NS.items()),
            *(graph(ON, DOSES[dose], 35_000 + dose) for dose in DOSES),
            *(
                graph(ONLY_B, DOSES[dose], 35_000 + dose + saving)
                for dose, saving in SAVING_NS.items()
            ),
        ]
    )


def kernels() -> pl.DataFrame:
    """One replay of three passes of every arm."""
    rows = [
        {
            "arm": arm,
            "experiment": "captured",
            "capture": 0,
            "round": 0,
            "replay": 0,
            "pass_index": index,
            "node": index * count + place,
            "kind": "kernel",
            "name": "work",
            "region": "moe",
            "pass_start_ns": index * 30_000,
            "start_ns": place * 10_000,
            "duration_ns": 10_000,
        }
        for arm, count in (*KERNELS_A_PASS.items(), (AGAIN, 2))
        for index in range(3)
        for place in range(count)
    ]
    return pl.DataFrame(rows, schema=KERNELS)


def edges() -> pl.DataFrame:
    """Chains of which the arms with ``a`` have one programmatic edge."""
    rows = [
        (arm, "captured", place, place + 1, place == 0 and arm in (ONLY_A, ON), 0, 0)
        for arm, count in KERNELS_A_PASS.items()
        for place in range(count)
    ]
    return pl.DataFrame(rows, schema=EDGES, orient="row")


def run(**changes: Any) -> Run:  # noqa: ANN401 (as for `header`)
    """The whole run in memory."""
    return Run(
        header=header(**changes),
        samples=samples(),
        kernels=kernels(),
        path=Path("paper-run"),
        edges=edges(),
    )
