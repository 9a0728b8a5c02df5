from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.report import build_report
from layerscope.run import Run
from tests import handmade

AGAIN = "reference (A/A)"
AGAIN_DIFFERS = (
    "reference, made twice, differs from itself by +100 ns (+0.25 %, 95 % +100 … "
    "+100): the noise floor includes it"
)
"""What is wrong with the hand-made run, and nothing else is."""


def test_an_arm_that_differs_from_itself_is_a_warning() -> None:
    """The A/A arm of the hand-made run is 100 ns slower than what it repeats."""
    report = build_report(handmade.run())
    assert report.title == "paper-moe, layer 0"
    assert report.warnings == (AGAIN_DIFFERS,)


def test_a_run_without_faults_has_no_warnings() -> None:
    """Where the A/A arm is what it repeats, nothing is wrong."""
    run = handmade.run()
    faster = pl.when(pl.col("arm") == AGAIN).then(pl.col("passes") * 100).otherwise(0)
    samples = run.samples.with_columns(duration_ns=pl.col("duration_ns") - faster)
    assert build_report(replace(run, samples=samples)).warnings == ()


def test_an_interval_that_is_wider_than_aimed_at_is_a_warning() -> None:
    """Each arm whose difference is not known as well as was planned is told.

    The fused captures are 1,000 ns apart. Of three, all the lowest are drawn 1 time in
    27, so the interval reaches to 1,000 ns times sqrt(3 / 2) * 4.303 / 1.960 on either
    side, which is 6.72 % of 40,000 ns.
    """
    run = handmade.run()
    wobble = pl.when(pl.col("arm") == "fused").then(
        pl.col("passes") * (pl.col("capture") - 1) * 1_000
    )
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + wobble.otherwise(0)
    )
    assert build_report(replace(run, samples=samples)).warnings == (
        (
            "the interval of fused is ±6.72 % of the layer, wider than the 0.30 % "
            "aimed at; raise --time-budget or --captures"
        ),
        AGAIN_DIFFERS,
    )


def test_intervals_of_too_few_captures_are_not_held_to_an_aim() -> None:
    """With two captures there is no verdict, and no interval to be too wide."""
    run = handmade.run()
    wobble = pl.col("passes") * pl.col("capture") * pl.col("position") * 1_000
    samples = run.samples.filter(pl.col("capture") < 2)
    samples = samples.with_columns(duration_ns=pl.col("duration_ns") + wobble)
    few = replace(run, samples=samples.filter(pl.col("phase") == "anchor"))
    assert build_report(few).warnings == ()


def test_shares_of_a_pass_that_the_profiler_slowed_are_doubted() -> None:
    """Where every kernel takes three times as long, the shares are of that pass."""
    run = handmade.run()
    times = ("pass_start_ns", "start_ns", "duration_ns")
    slow = replace(run, kernels=run.kernels.with_columns(pl.col(times) * 3))
    heavy = [
        warning
        for warning in build_report(slow).warnings
        if "under the profiler" in warning
    ]
    assert heavy == [
        f"a pass of {arm} took {factor} times as long under the profiler: its shares "
        "are of that slower pass"
        for arm, factor in (
            ("reference", "3.1"),
            ("fused", "3.0"),
            ("reference (A/A)", "3.1"),
        )
    ]


def test_notes_say_how_to_read_the_tables() -> None:
    """Observed shares, the unfused baseline, and every fallback are named."""
    assert build_report(handmade.run()).notes == (
        (
            "anchor: time of a pass in unprofiled replays, mean over captures of the "
            "median over rounds, with 95 % interval; changes are paired by round and "
            "judged against the noise floor"
        ),
        (
            "shares are observed: where the time of a profiled pass goes, not what "
            "removing a region would save; mean shares add up to the profiled mean, "
            "gaps, sums and hidden times to their totals, medians to nothing"
        ),
        (
            "every change to or from reference is against unfused torch, not against a "
            "serving kernel chain"
        ),
        "fused: MoE ran on reference (fused covers attention and o_proj_all_reduce)",
        (
            "hidden behind other kernels, a pass: reference 0 ns, fused 1.000 µs; that "
            "is no line of an observed ledger"
        ),
        "fused: from records alone: no serial twin was asked for",
        (
            "fused: overlap against faster kernels is not separable: kernels run "
            "beside each other in fused"
        ),
    )


def test_kernels_that_vary_are_noted() -> None:
    """A region whose passes have different numbers of kernels is named with both."""
    run = handmade.run()
    is_gone = (pl.col("arm") == "fused") & (pl.col("capture") == 1)
    is_gone &= (pl.col("region") == "moe") & (pl.col("pass_index") == 1)
    notes = build_report(replace(run, kernels=run.kernels.filter(~is_gone))).notes
    varying = [note for note in notes if "vary" in note]
    assert varying == ["fused: kernels a pass vary between 0 and 1 in MoE"]


def test_a_partial_run_says_so_first() -> None:
    """The first warning is that the study did not end, and why."""
    run = handmade.run(
        status="partial", status_reason="interrupted", warnings=["a fan is loud"]
    )
    stopped = replace(run, samples=run.samples.clear(), kernels=run.kernels.clear())
    assert build_report(stopped).warnings == (
        "partial run: interrupted",
        "no kernels were recorded, so there are no shares by region",
        "no whole round was sampled, so there are no anchors",
        "a fan is loud",
    )


def test_anchors_that_moved_are_a_warning() -> None:
    """Anchors that moved by more than captures differ are told, arm by arm."""
    run = handmade.run()
    slower = pl.when(pl.col("phase") == "after").then(pl.col("passes") * 300)
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + slower.otherwise(0)
    )
    assert build_report(replace(run, samples=samples)).warnings == (
        AGAIN_DIFFERS,
        *(
            f"the anchor of {arm} moved by +300 ns from before the profiler to after "
            "it, beyond the 95 % spread of captures"
            for arm in ("fused", "reference", AGAIN)
        ),
    )


def after_profiling(run: Run, added_ns: dict[str, int]) -> tuple[str, ...]:
    """Warnings of changes, where passes of arms took so much longer once more."""
    moved = [
        pl.when(phase="after", arm=arm).then(pl.col("passes") * each).otherwise(0)
        for arm, each in added_ns.items()
    ]
    longer = pl.col("duration_ns") + pl.sum_horizontal(moved)
    samples = run.samples.with_columns(duration_ns=longer)
    warnings = build_report(replace(run, samples=samples)).warnings
    return tuple(each for each in warnings if each.startswith("fused against "))


@pytest.mark.parametrize(
    ("added_ns", "after"),
    [
        ({"reference": 4_000}, "−31.8 %"),
        ({"reference": 20_000, "fused": 20_000}, "−16.7 %"),
        ({"reference": 20_000, "fused": 15_000}, None),
        ({"reference": 400, "fused": -100}, None),
    ],
    ids=["base-alone", "both-by-as-much", "both-by-half", "by-less-than-a-hundredth"],
)
def test_a_change_that_is_another_after_the_profiler_is_a_warning(
    added_ns: dict[str, int], after: str | None
) -> None:
    """Of 40 and 30 µs, which is −25 %, whatever the two themselves do."""
    told = (
        f"fused against reference is −25.0 %, but {after} after the profiler: what "
        "hiding launches gains depends on how fast kernels are launched, which may "
        "have been different then"
    )
    found = after_profiling(handmade.run(), added_ns)
    assert found == (() if after is None else (told,))


def test_a_change_that_is_not_known_is_not_held_against_a_later_one() -> None:
    """Of a single capture nothing is told apart."""
    run = handmade.run()
    one = replace(run, samples=run.samples.filter(pl.col("capture") == 0))
    assert after_profiling(one, {"reference": 9_000}) == ()


@pytest.mark.parametrize(("shift_ns", "is_told"), [(2_900, False), (3_000, True)])
def test_a_shift_that_captures_show_too_is_no_warning(
    *, shift_ns: int, is_told: bool
) -> None:
    """What another capture would have given anyway is not told as a shift.

    Captures of 0, 300 and 600 ns more: the next is within 300 ns * sqrt(4 / 3) * t of
    their mean. For 95 % of runs with three arms, t is 7.649, which makes 2,650 ns.
    """
    run = handmade.run()
    slower = pl.when(pl.col("phase") == "after").then(shift_ns)
    a_pass_ns = slower.otherwise(pl.col("capture") * 300)
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + pl.col("passes") * a_pass_ns
    )
    warnings = build_report(replace(run, samples=samples)).warnings
    assert any("moved by" in warning for warning in warnings) == is_told


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 50_000), st.integers(0, 20_000)),
        min_size=36,
        max_size=36,
    )
)
def test_every_total_is_its_profiled_pass(times: list[tuple[int, int]]) -> None:
    """Whatever the kernels do, mean shares add up to the profiled pass of the arm."""
    run = handmade.run()
    starts, durations = zip(*times, strict=True)
    kernels = run.kernels.filter(pl.col("capture") == 0, pl.col("replay") == 0)
    kernels = kernels.with_columns(
        start_ns=pl.Series(starts), duration_ns=pl.Series(durations)
    )
    tables = build_report(replace(run, kernels=kernels)).tables
    by_region = [table for table in tables if table.title.startswith("regions of")]
    for arm, table in zip(tables[0].rows, by_region, strict=True):
        *_, profiled_ns, _ = arm
        assert table.rows[-1][2] == profiled_ns
