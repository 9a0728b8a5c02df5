"""Runs of planted arms on a GPU of the mind, in which every time is known.

A kernel takes 1 µs, and what a pass must read takes 11 µs, four times as long where it
is slow. A kernel starts 0.9 µs after the one before it has ended, and the profiler adds
0.15 µs to that; an empty node takes 0.28 µs. How much earlier a kernel starts where it
overlaps is in `EARLIER_NS`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from layerscope.experiment import CAPTURED, SERIAL
from layerscope.run import Run
from layerscope.run_header import KernelCost, Trial
from layerscope.schema import KERNELS, SAMPLES
from layerscope.selftest.cases import Chain, Launch, Start, overlaps
from layerscope.study import AA_SUFFIX, ANCHOR_LENGTHS, Arm, CallableSpec, Study
from tests import handmade

CAPTURES = 3
ROUNDS = 6
PASSES = 4
OBSERVED_NS = 150

EARLIER_NS = {Start.PLAIN: 0, Start.STOCK: 60, Start.LATE: 120, Start.EARLY: 1_400}


@dataclass(frozen=True, slots=True)
class Arms:
    """Planted arms, and how long reading a chunk takes."""

    chains: Mapping[str, Chain]
    chunk_ns: int

    @classmethod
    def of(cls, chains: Mapping[str, Chain], reads: int) -> "Arms":
        """Arms that read `reads` times what a pass must."""
        base, *_ = chains.values()
        chunks = sum(chunks for launch in base for _, chunks in launch.work)
        return cls(chains, 11_000 * reads // chunks)

    def duration_ns(self, launch: Launch) -> int:
        """How long a kernel takes."""
        chunks = launch.chunks * launch.updates + launch.extra
        slower = 4 if launch.slow else 1
        return 1_000 + slower * self.chunk_ns * chunks + launch.spin_ns

    def earlier_ns(self, chain: Chain) -> list[int]:
        """How much earlier each kernel starts than it would in a row."""
        starts = [chain[-1].start, *(launch.start for launch in chain[:-1])]
        return [
            900 + self.duration_ns(launch) if launch.beside else EARLIER_NS[before]
            for launch, before in zip(chain, starts, strict=True)
        ]

    def pass_ns(self, chain: Chain, experiment: str) -> int:
        """The time of a pass, unprofiled."""
        serial_ns = sum(gaps_ns(chain)) + sum(map(self.duration_ns, chain))
        saved_ns = sum(self.earlier_ns(chain)) if experiment == CAPTURED else 0
        return serial_ns - saved_ns

    def graphs(self) -> Iterator[tuple[str, Chain, str]]:
        """(arm, kernels, experiment) of all that is measured; the first arm twice."""
        base, *_ = self.chains
        again = (f"{base}{AA_SUFFIX}", self.chains[base])
        for arm, chain in (*self.chains.items(), again):
            yield arm, chain, CAPTURED
            if overlaps(chain) and not arm.endswith(AA_SUFFIX):
                yield arm, chain, SERIAL.name


def gaps_ns(chain: Chain) -> list[int]:
    """The time before each kernel of a pass, one after the other."""
    writes = [chain[-1].writes, *(launch.writes for launch in chain[:-1])]
    return [900 + 800 * count for count in writes]


def samples(arms: Arms) -> pl.DataFrame:
    """One replay of every graph and length a round."""
    template = handmade.samples().row(0, named=True)
    rows = [
        template
        | {"arm": arm, "experiment": experiment, "capture": capture, "round": round_}
        | {
            "passes": passes,
            "duration_ns": 7_000 + passes * arms.pass_ns(chain, experiment),
        }
        for arm, chain, experiment in arms.graphs()
        for capture in range(CAPTURES)
        for round_ in range(ROUNDS)
        for passes in ANCHOR_LENGTHS
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def kernels(arms: Arms) -> pl.DataFrame:
    """One recorded replay of every graph a round."""
    template = handmade.kernels().row(0, named=True)
    rows = [
        template
        | {"arm": arm, "experiment": experiment, "capture": capture, "round": round_}
        | {"replay": round_}
        | row
        for arm, chain, experiment in arms.graphs()
        for capture in range(CAPTURES, 2 * CAPTURES)
        for round_ in range(ROUNDS)
        for row in replay(arms, chain, experiment)
    ]
    return pl.DataFrame(rows, schema=KERNELS)


def replay(arms: Arms, chain: Chain, experiment: str) -> Iterator[dict[str, Any]]:
    """The kernels of a replay; a pass starts where the replay does."""
    saved = arms.earlier_ns(chain) if experiment == CAPTURED else [0] * len(chain)
    end_ns = 0
    for index in range(PASSES):
        for place, launch in enumerate(chain):
            start_ns = end_ns + gaps_ns(chain)[place] + OBSERVED_NS - saved[place]
            end_ns = max(end_ns, start_ns + arms.duration_ns(launch))
            yield {
                "pass_index": index,
                "node": index * len(chain) + place,
                "name": launch.kernel,
                "region": launch.region,
                "role": launch.role,
                "pass_start_ns": 0,
                "start_ns": start_ns,
                "duration_ns": arms.duration_ns(launch),
            }


def run(chains: Mapping[str, Chain], reads: int) -> Run:
    """The whole run of planted arms."""
    arms = Arms.of(chains, reads)
    study = Study(
        spec=CallableSpec(inputs=(), tolerance=0.0),
        arms=tuple(Arm(backend=arm) for arm in chains),
        experiments=(SERIAL,),
        captures=CAPTURES,
    )
    trials = [
        Trial(
            arm=arm,
            experiment=SERIAL,
            outcome="measured" if overlaps(chain) else "same",
        )
        for arm, chain in chains.items()
    ]
    cost = KernelCost(blocks=132, added_ns=OBSERVED_NS, low_ns=140.0, high_ns=160.0)
    header = handmade.header(study=study, trials=trials, observer_costs=[cost])
    return Run(header, samples(arms), kernels(arms), Path("simulated"))
