from dataclasses import replace

import msgspec
import polars as pl
import pytest

from layerscope.analyze.diagnosis import Diagnosis, Limit, diagnosis_of
from layerscope.analyze.swept import sweep_run
from layerscope.run import Run
from layerscope.run_header import Bound, ReadCost
from tests import edited, handmade


def bound(name: str, pass_ns: float) -> Bound:
    """A bound of the standard chain without spread."""
    return Bound(
        arm="", name=name, pass_ns=pass_ns, low_ns=pass_ns, high_ns=pass_ns,
        kernels=3, bytes=6_000_000,
    )  # fmt: skip


def of(run: Run, arm: str = "fused") -> tuple[Limit, str, dict[Limit, float]]:
    """What limits an arm, why not, and the parts."""
    found = diagnosis_of(sweep_run(run), arm)
    return found.limit, found.reason, found.parts


def test_kernels_far_from_their_reads_are_the_limit() -> None:
    """Of 30,500 ns, 17,000 are neither read, launch, nor overlap not realised.

    Legal early starts promise 8,000 ns and give 4,000; one read takes 8,000 ns.
    """
    assert of(edited.run()) == (
        Limit.COMPUTE,
        "",
        {
            Limit.COMPUTE: 17_000.0,
            Limit.MEMORY: 8_000.0,
            Limit.WAITING: 4_000.0,
            Limit.LAUNCHES: 1_500.0,
            Limit.COMMUNICATION: 0.0,
        },
    )


@pytest.mark.parametrize(
    "bounds",
    [
        [bound("one read", 24_000)],  # 30,000 ns are 1.25 times as much
        # 2.00 and 1.09 times
        [bound("one read", 15_000), bound("legal early start", 27_500)],
    ],
)
def test_an_arm_near_its_bytes_is_limited_by_memory(bounds: list[Bound]) -> None:
    """Near one read, or near the legal early start: only fewer bytes help."""
    limit, reason, _ = of(edited.run(bounds=bounds))
    assert (limit, reason) == (Limit.MEMORY, "")


def test_a_legal_order_that_is_no_read_is_not_memory() -> None:
    """As near to it as above, but one read is 8,000 of 30,000 ns, which is not most."""
    bounds = [bound("one read", 8_000), bound("legal early start", 27_500)]
    limit, _, _ = of(edited.run(bounds=bounds))
    assert limit is Limit.COMPUTE


def test_memory_may_be_the_largest_part_farther_off() -> None:
    """One read of 20,000 ns is 1.5 times below the anchor, and most of the pass."""
    limit, _, parts = of(edited.run(bounds=[bound("one read", 20_000)]))
    assert limit is Limit.MEMORY
    assert parts[Limit.MEMORY] == 20_000


def test_overlap_that_is_not_realised_is_waiting() -> None:
    """Early starts promise 24,000 ns, of which the arm has 4,000."""
    bounds = [bound("no PDL", 36_000), bound("legal early start", 12_000)]
    limit, _, parts = of(edited.run(bounds=[*bounds, bound("one read", 8_000)]))
    assert limit is Limit.WAITING
    assert parts[Limit.WAITING] == 20_000


def test_without_bounds_waits_that_nothing_hides_are_waiting() -> None:
    """`project` is 15,000 ns longer than in the twin, and all but 500 are hidden."""
    run = edited.run(bounds=[], reads=edited.READS)
    waits = (pl.col("experiment") == "captured") & (pl.col("name") == "project")
    longer = pl.when(waits).then(15_000).otherwise(0)
    kernels = run.kernels.with_columns(duration_ns=pl.col("duration_ns") + longer)
    _, _, parts = of(replace(run, kernels=kernels))
    assert parts[Limit.WAITING] == 500


def test_an_arm_without_programmatic_edges_does_not_wait() -> None:
    """What it could overlap is not lost to waiting: it never tried."""
    _, _, parts = of(edited.run(programmatic={}))
    assert parts[Limit.WAITING] == 0


def test_short_kernels_and_gaps_are_launches() -> None:
    """Where every kernel is as short as the smallest read, the whole pass is."""
    reads = [
        ReadCost(bytes=size, duration_ns=20_000) for size in (1_000_000, 8_000_000)
    ]
    limit, reason, parts = of(edited.run(reads=reads, bounds=[], programmatic={}))
    assert (limit, reason) == (Limit.LAUNCHES, "")
    assert parts[Limit.LAUNCHES] == 30_500


def test_collectives_of_real_ranks_are_communication() -> None:
    """An all-reduce of 20,000 ns of 41,000, beside one read of 8,000 ns."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, tp=2)
    run = edited.run(study=msgspec.structs.replace(study, spec=spec))
    names = pl.col("name").replace({"attend": "ncclDevKernel_AllReduce_Sum_bf16"})
    run = replace(run, kernels=run.kernels.with_columns(name=names))
    limit, _, parts = of(run, "reference")
    assert limit is Limit.COMMUNICATION
    assert parts[Limit.COMMUNICATION] == 22_000


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (handmade.run(), "without calibrated reads, bytes and work look alike"),
        (
            edited.run(bounds=[bound("one read", 13_000)], programmatic={}),
            "no part of the pass is clearly the largest",
        ),
        (
            replace(edited.run(), kernels=handmade.kernels().clear()),
            "no kernels were recorded",
        ),
        (
            edited.run(
                environment=msgspec.structs.replace(
                    handmade.environment(),
                    device=msgspec.structs.replace(
                        handmade.environment().device, type="cpu"
                    ),
                )
            ),
            "on a CPU, operators stand for kernels",
        ),
    ],
)
def test_what_is_not_clear_is_unknown_with_a_reason(run: Run, reason: str) -> None:
    """No calibration, two parts of one size, no records, or no GPU."""
    limit, told, _ = of(run)
    assert (limit, told) == (Limit.UNKNOWN, reason)


def test_a_diagnosis_carries_its_evidence() -> None:
    """The anchor, what it is held against, the region to begin with, early starts."""
    found = diagnosis_of(sweep_run(edited.run()), "fused")
    assert isinstance(found, Diagnosis)
    assert (found.anchor_ns, found.limits.benefit_ns) == (30_000, 4_000)
    assert found.furthest == "attention"
    assert [(each.kernel, each.lead_ns) for each in found.early] == [("project", 1_000)]
