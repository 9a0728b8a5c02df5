from dataclasses import replace

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.report import build_report
from tests import handmade


def test_a_complete_run_has_no_warnings() -> None:
    """Nothing is wrong with the hand-made run."""
    report = build_report(handmade.run())
    assert report.title == "paper-moe, layer 0"
    assert report.warnings == ()


def test_notes_say_how_to_read_the_tables() -> None:
    """Observed shares, the unfused baseline, and every fallback are named."""
    assert build_report(handmade.run()).notes == (
        (
            "anchor: time of a pass in unprofiled replays, median with 95 % interval; "
            "changes are paired by round and judged against the noise floor"
        ),
        (
            "shares are observed: where the time of a profiled pass goes, not what "
            "removing a region would save; only mean shares, gaps, sums and hidden "
            "times add up"
        ),
        (
            "every change to or from reference is against unfused torch, not against a "
            "serving kernel chain"
        ),
        "fused: moe ran on reference (fused covers attention and o_proj_all_reduce)",
    )


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


def test_a_machine_that_changed_is_a_warning() -> None:
    """Anchors that moved by more than captures differ are told, arm by arm."""
    run = handmade.run()
    slower = pl.when(pl.col("phase") == "after").then(pl.col("passes") * 300)
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + slower.otherwise(0)
    )
    assert build_report(replace(run, samples=samples)).warnings == tuple(
        f"the anchor of {arm} moved by +300 ns from before the profiler to after it, "
        "more than captures differ: the machine changed in the run"
        for arm in ("fused", "reference", "reference (A/A)")
    )


def test_a_shift_that_captures_show_too_is_no_warning() -> None:
    """What another capture would have given anyway is not blamed on the machine."""
    run = handmade.run()
    slower = pl.when(pl.col("phase") == "after").then(600)
    a_pass_ns = slower.otherwise(pl.col("capture") * 300)
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + pl.col("passes") * a_pass_ns
    )
    assert build_report(replace(run, samples=samples)).warnings == ()


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
    for arm, table in zip(tables[0].rows, tables[1:], strict=True):
        *_, profiled_ns, _ = arm
        assert table.rows[-1][2] == profiled_ns
