import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.ledger import ledger
from layerscope.experiment import SERIAL
from layerscope.run import Run, load
from layerscope.run_header import Trial
from tests.analyze.timelines import (
    BASE,
    CAPTURES,
    OTHER,
    Flaws,
    Kernel,
    arms_run,
    captured_ns,
    serial_ns,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

Lines: TypeAlias = Mapping[Cause, float]

SERIAL_ALREADY = "the graphs of both arms are already serial, so overlap is zero"

# A pass of 23,250 ns, serial as it is.
BASE_CHAIN = [
    Kernel("attention", "attend", 5_000, 500, role="attend"),
    Kernel("attention", "norm", 1_000, 400, role="norm"),
    Kernel("moe", "gate_up", 8_000, 500, role="gate_up"),
    Kernel("moe", "act", 900, 450, role="act"),
    Kernel("moe", "down", 6_000, 500, role="down"),
]
# 20,000 ns serial; captured, the last kernel starts 300 ns before the end of the one
# before it and so is done 500 (its gap) + 200 ns sooner.
OTHER_CHAIN = [
    Kernel("attention", "attend", 5_000, 300, role="attend"),
    Kernel("moe", "gate_up_act", 8_200, 500, role="gate_up+act"),
    Kernel("moe", "down_2", 5_500, 500, role="down", early_ns=300, saved_ns=200),
]

KINDS = (
    *("same", "gap", "slower", "faster", "merged", "split"),
    *("removed", "added", "early", "nested", "replaced"),
)
UNITS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(["attention", "moe"]),
        st.tuples(*[st.integers(1_000, 9_000)] * 3),  # durations
        st.tuples(*[st.integers(0, 900)] * 3),  # gaps
        st.sampled_from([1, 101, 301]),  # blocks
    ),
    max_size=8,
)
ARMS = st.sampled_from([BASE, OTHER])
FLAWS = st.builds(
    Flaws,
    # the median of three rounds withstands one that is missing or one that is odd
    dropped=st.frozensets(st.tuples(ARMS, st.just(0), st.just(2))),
    outliers=st.frozensets(st.tuples(ARMS, st.just(1))),
    lost=st.frozensets(st.tuples(ARMS, st.integers(0, CAPTURES - 1))),
)
FEW = settings(max_examples=25)

Unit: TypeAlias = tuple[str, str, tuple[int, ...], tuple[int, ...], int]
Sides: TypeAlias = tuple[list[Kernel], list[Kernel], Lines]

MIRRORED = {"split": "merged", "added": "removed"}
SEPARATE = [cause for cause in Cause if cause is not Cause.MIXED]


@dataclass(frozen=True)
class Planted:
    """Two chains, and what their difference comes from."""

    base: list[Kernel]
    other: list[Kernel]
    lines: dict[Cause, float]


def planted(units: list[Unit]) -> Planted:
    """Chains that differ by the causes drawn, one after the other."""
    first = Kernel("attention", "first", 2_000, 100)
    begin = [first, first._replace(name="second")]
    made = Planted([*begin], [*begin], dict.fromkeys(SEPARATE, 0.0))
    for index, unit in enumerate(units):
        bases, others, lines = plant(index, unit)
        made.base.extend(bases)
        made.other.extend(others)
        for cause, change in lines.items():
            made.lines[cause] += change
    for sign, chain in ((1, made.base), (-1, made.other)):
        benefit = serial_ns(chain) - captured_ns(chain)
        made.lines[Cause.OVERLAP] += sign * benefit
    return made


def plant(index: int, unit: Unit) -> Sides:
    """Kernels of base and other that differ in one thing, and what it contributes."""
    kind, region, durations, gaps, blocks = unit
    if kind in MIRRORED:
        others, bases, lines = plant(index, (MIRRORED[kind], *unit[1:]))
        return bases, others, {cause: -change for cause, change in lines.items()}
    one, two, three = (
        Kernel(region, f"{index}_{place}", duration, gap, f"r{index}_{place}", blocks)
        for place, duration, gap in zip("xyz", durations, gaps, strict=True)
    )
    return (pairs(one, two) | groups(index, one, two, three))[kind]


def pairs(one: Kernel, two: Kernel) -> dict[str, Sides]:
    """One kernel on either side."""
    by_gap, by_work = two.gap_ns - one.gap_ns, two.duration_ns - one.duration_ns
    slower = one._replace(duration_ns=two.duration_ns)
    inside = one._replace(early_ns=500, saved_ns=one.duration_ns + 200, stream=8)
    both = {Cause.FASTER: by_work, Cause.GAPS: by_gap}
    return {
        "same": ([one], [one], {}),
        "gap": ([one], [one._replace(gap_ns=two.gap_ns)], {Cause.GAPS: by_gap}),
        "slower": ([one], [slower], {Cause.SAME: by_work}),
        "faster": ([one], [two._replace(role=one.role)], both),
        "early": ([one], [one._replace(early_ns=500, saved_ns=400)], {}),
        "nested": ([one], [inside], {}),
    }


def groups(index: int, one: Kernel, two: Kernel, three: Kernel) -> dict[str, Sides]:
    """More kernels on one side."""
    merged = {
        Cause.MERGED: three.duration_ns - one.duration_ns - two.duration_ns,
        Cause.GAPS: three.gap_ns - one.gap_ns,
        Cause.LAUNCHES: -two.gap_ns,
    }
    replaced = {
        Cause.REPLACED: two.duration_ns + three.duration_ns - one.duration_ns,
        Cause.GAPS: two.gap_ns - one.gap_ns,
        Cause.LAUNCHES: three.gap_ns,
    }
    removed = {Cause.ADDED: -one.duration_ns, Cause.LAUNCHES: -one.gap_ns}
    # without roles, and apart from all others, or these would be replaced too
    bare, *rest = (
        kernel._replace(role=None, region=f"own_{index}")
        for kernel in (one, two, three)
    )
    return {
        "merged": (
            [one, two],
            [three._replace(role=f"{one.role}+{two.role}")],
            merged,
        ),
        "removed": ([one], [], removed),
        "replaced": ([bare], rest, replaced),
    }


def values(found: Ledger) -> Lines:
    """The value of every line, to less than a picosecond."""
    return {line.cause: round(line.change.value, 4) for line in found.lines}


def exactly(value: float) -> Estimate:
    """The estimate of six rounds that all agree."""
    return Estimate(value, value, value, 6, 6.0)


def within(value: float, by: float) -> Estimate:
    """The same of rounds whose records' cost is known to so much."""
    return Estimate(value, value - by, value + by, 6, 6.0)


def swapped(found: Ledger) -> Lines:
    """`values` with the other sign."""
    return {cause: -change for cause, change in values(found).items()}


def test_by_experiments() -> None:
    """Each part of a known difference is on its own line, and they add up."""
    found = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN), BASE, OTHER)
    assert found.basis == "experiments"
    assert found.change == exactly(-3_950.0)
    assert found.base_ns == 23_250.0
    assert {line.cause: line.change for line in found.lines} == {
        Cause.OVERLAP: exactly(-700.0),
        Cause.LAUNCHES: within(-850.0, 20.0),  # norm 400, act 450; each cost ± 10
        Cause.GAPS: exactly(-200.0),  # attend
        Cause.SAME: exactly(0.0),
        Cause.FASTER: exactly(-500.0),  # down
        Cause.MERGED: exactly(-700.0),  # gate_up and act
        Cause.ADDED: exactly(-1_000.0),  # norm
        Cause.REPLACED: exactly(0.0),
    }
    assert found.fusion == -850.0 - 700.0 - 1_000.0
    assert found.residual == within(0.0, 20.0)
    assert found.hidden == {BASE: 0.0, OTHER: 300.0}
    assert found.unknown == ""
    assert found.notes == ()


def test_corners_by_experiments() -> None:
    """The 2 x 2 has both arms, captured and serial."""
    corners = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN), BASE, OTHER).corners
    assert corners is not None
    assert (corners.base, corners.base_serial) == (exactly(23_250.0),) * 2
    assert corners.other == exactly(19_300.0)
    assert corners.other_serial == exactly(20_000.0)
    assert corners.base_benefit == exactly(0.0)
    assert corners.other_benefit == exactly(700.0)


def test_regions_by_experiments() -> None:
    """Every line from records is told for each region."""
    regions = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN), BASE, OTHER).regions
    found = {
        region: {cause: change.value for cause, change in lines.items() if change.value}
        for region, lines in regions.items()
    }
    assert found == {
        "attention": {Cause.LAUNCHES: -400, Cause.GAPS: -200, Cause.ADDED: -1_000},
        "moe": {Cause.LAUNCHES: -450, Cause.FASTER: -500, Cause.MERGED: -700},
    }


def test_observed() -> None:
    """Without twins, what runs behind others is in the lines of its kernels."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins=None)
    found = ledger(run, BASE, OTHER)
    assert found.basis == "observed"
    assert found.change == exactly(-3_950.0)
    assert found.base_ns == 23_250.0
    assert values(found) == {
        Cause.LAUNCHES: -850.0,
        Cause.GAPS: -700.0,  # attend 200, and down starts at once
        Cause.SAME: 0.0,
        Cause.FASTER: -700.0,  # down 500, and 200 that it does meanwhile
        Cause.MERGED: -700.0,
        Cause.ADDED: -1_000.0,
        Cause.REPLACED: 0.0,
    }
    assert found.residual == exactly(0.0)
    assert found.corners is None
    assert found.hidden == {BASE: 0.0, OTHER: 300.0}
    reasons, overlap = found.notes
    assert reasons == "from records alone: no serial twin was asked for"
    assert overlap == (
        "overlap against faster kernels is not separable: kernels run beside each "
        "other in fused"
    )


def test_without_overlap_everything_is_separable() -> None:
    """Where nothing runs beside anything, there is nothing to tell apart."""
    run = arms_run(BASE_CHAIN, BASE_CHAIN, twins=None)
    assert len(ledger(run, BASE, OTHER).notes) == 1


def test_a_change_that_no_record_shows_is_residual() -> None:
    """An event between kernels leaves no record; its time is not forced to zero."""
    run = arms_run(BASE_CHAIN, BASE_CHAIN)
    longer = pl.col("arm") == OTHER
    event_ns = pl.when(longer).then(2_800 * pl.col("passes")).otherwise(0)
    samples = run.samples.with_columns(pl.col("duration_ns") + event_ns)
    found = ledger(replace(run, samples=samples), BASE, OTHER)
    assert found.change == exactly(2_800.0)
    assert set(values(found).values()) == {0.0}
    assert found.residual == exactly(2_800.0)


def test_an_uncertain_residual_has_an_interval() -> None:
    """It is as wide as that of what twins and records differ by."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    is_noisy = pl.col("experiment") == "serial"
    noise_ns = pl.when(is_noisy, pl.col("arm") == OTHER).then(80 * pl.col("round"))
    samples = run.samples.with_columns(
        pl.col("duration_ns") + (noise_ns * pl.col("passes")).fill_null(0)
    )
    found = ledger(replace(run, samples=samples), BASE, OTHER)
    assert found.residual.value == 80.0
    assert found.residual.low < 80.0 < found.residual.high
    overlap = found.lines[0].change
    assert overlap.value == -700.0 - 80.0


def test_serial_arms_have_no_overlap() -> None:
    """Where both graphs are serial already, the line is zero, and is said to be."""
    run = arms_run(BASE_CHAIN, BASE_CHAIN[1:], twins="same", observer_costs=[])
    found = ledger(run, BASE, OTHER)
    assert found.basis == "experiments"
    assert found.lines[0].change == exactly(0.0)
    assert values(found)[Cause.ADDED] == -5_000.0
    assert found.residual == exactly(0.0)
    assert found.notes == (
        SERIAL_ALREADY,
        "what the profiler costs is not known, and in the gaps",
    )


def test_one_serial_arm_is_its_own_twin() -> None:
    """Its captured graph stands beside the twin of the other arm."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    is_base_twin = (pl.col("arm") == BASE) & (pl.col("experiment") == "serial")
    trials = [
        Trial(arm=BASE, experiment=SERIAL, outcome="same"),
        Trial(arm=OTHER, experiment=SERIAL, outcome="measured"),
    ]
    made = arms_run(BASE_CHAIN, OTHER_CHAIN, trials=trials)
    as_captured = pl.lit("captured").alias("experiment")
    kernels = pl.concat(
        [
            run.kernels.filter(is_base_twin).with_columns(as_captured),
            run.kernels.filter(pl.col("arm") == OTHER),
        ]
    )
    samples = run.samples.filter(~is_base_twin)
    found = ledger(replace(made, kernels=kernels, samples=samples), BASE, OTHER)
    assert values(found) == values(ledger(run, BASE, OTHER))


def test_a_refused_twin_leaves_what_was_observed() -> None:
    """One arm without a twin makes the ledger an observed one, with the reason."""
    trials = [
        Trial(arm=BASE, experiment=SERIAL, outcome="same"),
        Trial(arm=OTHER, experiment=SERIAL, outcome="refused", reason="a host node"),
    ]
    found = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN, trials=trials), BASE, OTHER)
    assert found.basis == "observed"
    assert found.notes[0] == (
        "from records alone: fused has no serial twin: it was refused (a host node)"
    )


@pytest.mark.parametrize("twins", ["measured", None])
def test_a_lower_clock_leaves_nothing_attributed(
    twins: Literal["measured"] | None,
) -> None:
    """All of the change is residual, and the ledger says why."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins=twins)
    slow = pl.when(pl.col("arm") == OTHER).then(1_755).otherwise(1_980)
    samples = run.samples.with_columns(sm_clock_mhz=slow.cast(pl.Int64))
    found = ledger(replace(run, samples=samples), BASE, OTHER)
    assert found.unknown == "clock: 1,755 MHz in fused, 1,980 MHz in reference"
    assert (found.lines, found.regions) == ((), {})
    assert found.residual == found.change == exactly(-3_950.0)


def test_clocks_of_other_arms_and_phases_do_not_matter() -> None:
    """Only what was compared must have run at one clock."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    slow = {"sm_clock_mhz": pl.lit(300, pl.Int64)}
    later = run.samples.with_columns(phase=pl.lit("after"), **slow)
    third = run.samples.with_columns(arm=pl.lit("third"), **slow)
    samples = pl.concat([run.samples, later, third])
    assert ledger(replace(run, samples=samples), BASE, OTHER).unknown == ""


def test_a_twin_that_overlaps_is_none() -> None:
    """A captured graph that is called serial, and whose kernels overlap, is refused."""
    run = arms_run(BASE_CHAIN, [OTHER_CHAIN[0], OTHER_CHAIN[2]], twins="same")
    found = ledger(run, BASE, OTHER)
    assert found.unknown == (
        "the serial twin of fused overlaps: 300 ns of a pass are hidden"
    )
    assert found.lines == ()


def test_a_twin_that_overlaps_a_little_is_told() -> None:
    """From 0.5 % to 2 % of a pass, here 1.6 %, the ledger stands with a note."""
    found = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN, twins="same"), BASE, OTHER)
    assert found.unknown == ""
    overlaps = "the serial twin of fused overlaps: 300 ns of a pass are hidden"
    assert found.notes == (SERIAL_ALREADY, overlaps)


def test_passes_with_other_kernels_are_left_out() -> None:
    """They are counted in a note, and change no line."""
    flaws = Flaws(lost=frozenset({(OTHER, 0), (OTHER, 1)}))
    found = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN, flaws=flaws), BASE, OTHER)
    whole = ledger(arms_run(BASE_CHAIN, OTHER_CHAIN), BASE, OTHER)
    assert found.lines == whole.lines
    assert found.notes == (
        "2 of 18 passes of fused have other kernels than most, and are left out",
    )


def test_kernels_that_vary_cannot_be_matched() -> None:
    """Where most passes have kernels of their own, no list is typical."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins=None)
    name = pl.format("{}_{}_{}", "name", "round", "pass_index")
    kernels = run.kernels.with_columns(
        name=pl.when(pl.col("arm") == OTHER).then(name).otherwise("name")
    )
    found = ledger(replace(run, kernels=kernels), BASE, OTHER)
    assert found.unknown == (
        "the kernels of fused vary: at most 2 of 18 passes have the same"
    )


def test_without_records_the_anchors_still_differ() -> None:
    """A run that was stopped before it recorded has a change, and no cause."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    found = ledger(replace(run, kernels=run.kernels.clear()), BASE, OTHER)
    assert found.basis == "observed"
    assert found.change == found.residual == exactly(-3_950.0)
    assert found.base_ns == 23_250.0
    assert found.unknown == "no pass of reference was recorded"
    assert found.hidden == {}


def test_without_common_rounds_nothing_is_compared() -> None:
    """Records of different rounds are of different times."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins=None)
    late = pl.when(pl.col("arm") == OTHER).then(10).otherwise(0)
    kernels = run.kernels.with_columns(pl.col("round") + late)
    found = ledger(replace(run, kernels=kernels), BASE, OTHER)
    assert found.unknown == "no round was recorded of both arms"


def test_rounds_without_both_twins_tell_nothing_of_overlap() -> None:
    """Overlap is paired, so a stopped run may have twins and no overlap."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    kept = (pl.col("experiment") == "captured") | (
        (pl.col("arm") == OTHER) == (pl.col("capture") == 0)
    )
    found = ledger(replace(run, samples=run.samples.filter(kept)), BASE, OTHER)
    assert found.unknown == "no round was timed with both twins"
    assert found.change == exactly(-3_950.0)


def test_a_run_from_before_experiments() -> None:
    """Old runs, without roles, give an observed ledger that closes."""
    run = load(FIXTURES / "h200" / "qwen3-30b-a3b-tp1-rows8-bfloat16")
    found = ledger(run, "reference", "torch_compile")
    assert (found.basis, found.unknown) == ("observed", "")
    assert found.change.value == pytest.approx(-498_149, abs=1)
    assert {cause for cause, change in values(found).items() if change} == {
        Cause.LAUNCHES,
        Cause.GAPS,
        Cause.SAME,
        Cause.REPLACED,
    }
    assert values(found)[Cause.LAUNCHES] == pytest.approx(-29_028, abs=1)
    assert abs(found.residual.value) < 0.001 * found.base_ns
    assert found.residual.low <= 0 <= found.residual.high
    assert sorted(found.regions) == ["attention", "moe", "o_proj_all_reduce"]


@FEW
@given(UNITS, FLAWS)
def test_every_cause_is_on_its_line(units: list[Unit], flaws: Flaws) -> None:
    """What was planted is what is found, and the ledger closes without a residual."""
    made = planted(units)
    found = ledger(arms_run(made.base, made.other, flaws=flaws), BASE, OTHER)
    assert values(found) == made.lines
    change_ns = captured_ns(made.other) - captured_ns(made.base)
    assert found.change.value == pytest.approx(change_ns, abs=1e-4)
    assert found.residual.value == pytest.approx(0.0, abs=1e-4)


@FEW
@given(UNITS)
def test_observed_lines_add_up(units: list[Unit]) -> None:
    """Without twins, gaps and exclusive times of all kernels are the whole change."""
    made = planted(units)
    found = ledger(arms_run(made.base, made.other, twins=None), BASE, OTHER)
    change_ns = captured_ns(made.other) - captured_ns(made.base)
    assert found.change.value == pytest.approx(change_ns, abs=1e-4)
    assert sum(values(found).values()) == pytest.approx(change_ns, abs=1e-4)
    assert found.residual.value == pytest.approx(0.0, abs=1e-4)


@FEW
@given(UNITS, FLAWS, st.sampled_from(["measured", None]))
def test_swapping_the_arms_swaps_all_signs(
    units: list[Unit], flaws: Flaws, twins: Literal["measured"] | None
) -> None:
    """Every line of B against A is that of A against B with the other sign."""
    made = planted(units)
    run = arms_run(made.base, made.other, flaws=flaws, twins=twins)
    one, two = ledger(run, BASE, OTHER), ledger(run, OTHER, BASE)
    assert values(one) == swapped(two)
    for region, lines in one.regions.items():
        for cause, change in lines.items():
            mirrored = two.regions[region][cause]
            assert change.value == pytest.approx(-mirrored.value, abs=1e-4)


@FEW
@given(UNITS)
def test_equal_arms_differ_in_nothing(units: list[Unit]) -> None:
    """An arm against another of the same kernels has zeros on all lines."""
    chain = planted(units).other
    found = ledger(arms_run(chain, chain), BASE, OTHER)
    assert {line.change for line in found.lines} == {exactly(0.0)}
    assert found.change == found.residual == exactly(0.0)


@FEW
@given(UNITS, st.sampled_from(["measured", None]), st.randoms(use_true_random=False))
def test_order_of_rows_is_nothing(
    units: list[Unit], twins: Literal["measured"] | None, shuffler: random.Random
) -> None:
    """The rows of a run may come in any order."""
    made = planted(units)
    run = arms_run(made.base, made.other, twins=twins)
    assert ledger(_shuffled(run, shuffler), BASE, OTHER) == ledger(run, BASE, OTHER)


def _shuffled(run: Run, shuffler: random.Random) -> Run:
    seed = shuffler.randrange(1 << 32)
    samples, kernels = (
        frame.sample(fraction=1, shuffle=True, seed=seed)
        for frame in (run.samples, run.kernels)
    )
    return replace(run, samples=samples, kernels=kernels)
