import polars as pl
import pytest

from layerscope.layers.draft_spec import DraftSpec
from layerscope.report import Interval, Table, Traffic, build_report
from layerscope.run import Run
from layerscope.run_header import RegionBytes
from layerscope.study import Arm, Study
from tests import handmade


def changed(run: Run, **frames: pl.DataFrame) -> Run:
    """`run` with other samples or kernels."""
    return Run(
        header=run.header,
        samples=frames.get("samples", run.samples),
        kernels=frames.get("kernels", run.kernels),
        path=run.path,
    )


def keys(table: Table) -> list[str]:
    """The names of a table's columns."""
    return [column.key for column in table.columns]


def test_the_layer_table() -> None:
    """Anchors, paired changes, traffic and profiled passes are those on paper."""
    table = build_report(handmade.run()).tables[0]
    assert table.title == "layer: one pass, change against unfused torch (reference)"
    assert keys(table) == [
        "arm",
        "anchor_ns",
        "change_ns",
        "traffic_bytes",
        "profiled_ns",
        "kernels",
    ]
    assert [column.title for column in table.columns] == [
        "arm",
        "anchor",
        "change",
        "touched / required",
        "profiled mean",
        "kernels",
    ]
    assert table.rows == (
        (
            "reference",
            Interval(40_000, 40_000, 40_000),
            None,
            Traffic(12_000_000, 6_000_000, 2.0),
            41_000,
            3,
        ),
        (
            "fused",
            Interval(30_000, 30_000, 30_000),
            Interval(-10_000, -10_000, -10_000, -0.25, "faster"),
            Traffic(6_000_000, 6_000_000, 1.0),
            30_500,
            3,
        ),
        (
            "reference (A/A)",
            Interval(40_100, 40_100, 40_100),
            Interval(100, 100, 100, 0.0025),
            Traffic(12_000_000, 6_000_000, 2.0),
            41_000,
            3,
        ),
    )


def test_the_regions_of_the_first_arm() -> None:
    """Shares, gaps, sums and hidden times add up to the profiled pass."""
    table = build_report(handmade.run()).tables[1]
    assert table.title == "regions of reference, a profiled pass"
    assert keys(table) == [
        "region",
        "kernels",
        "share_mean_ns",
        "share_median_ns",
        "gap_mean_ns",
        "duration_mean_ns",
        "hidden_mean_ns",
        "span_median_ns",
    ]
    assert table.has_total
    assert table.rows == (
        ("attention", 1, 22_000, 22_000, 2_000, 20_000, 0, 20_000),
        ("o_proj_all_reduce", 1, 6_000, 6_000, 1_000, 5_000, 0, 5_000),
        ("moe", 1, 13_000, 13_000, 0, 13_000, 0, 13_000),
        ("total", 3, 41_000, None, 3_000, 38_000, 0, None),
    )


def test_the_regions_of_another_arm() -> None:
    """Every other arm also has the change of each share, and what it is against."""
    table = build_report(handmade.run()).tables[2]
    assert table.title == (
        "regions of fused, a profiled pass, change of mean share "
        "against unfused torch (reference)"
    )
    assert keys(table)[-1] == "change_ns"
    attention = Interval(-6_000, -6_000, -6_000, -6_000 / 22_000, "faster")
    projection = Interval(-2_000, -2_000, -2_000, -2_000 / 6_000, "faster")
    experts = Interval(-2_500, -2_500, -2_500, -2_500 / 13_000, "faster")
    assert table.rows == (
        ("attention", 1, 16_000, 16_000, 1_000, 15_000, 0, 15_000, attention),
        ("o_proj_all_reduce", 1, 4_000, 4_000, 0, 5_000, 1_000, 5_000, projection),
        ("moe", 1, 10_500, 10_500, 500, 10_000, 0, 10_000, experts),
        ("total", 3, 30_500, None, 1_500, 30_000, 1_000, None, None),
    )


def test_the_regions_of_the_arm_captured_again() -> None:
    """The A/A arm has changes and no verdicts: the noise floor is made of them."""
    table = build_report(handmade.run()).tables[3]
    assert table.title == (
        "regions of reference (A/A), a profiled pass, change of mean share "
        "against unfused torch (reference)"
    )
    none = Interval(0, 0, 0, 0.0)
    assert table.rows == (
        ("attention", 1, 22_000, 22_000, 2_000, 20_000, 0, 20_000, none),
        ("o_proj_all_reduce", 1, 6_000, 6_000, 1_000, 5_000, 0, 5_000, none),
        ("moe", 1, 13_000, 13_000, 0, 13_000, 0, 13_000, none),
        ("total", 3, 41_000, None, 3_000, 38_000, 0, None, None),
    )


def test_a_fused_baseline_is_named() -> None:
    """Where the first arm is not the reference, changes are against that arm."""
    study = handmade.study()
    arms = (Arm(backend="fused"), Arm(backend="reference"))
    run = handmade.run(study=Study(spec=study.spec, arms=arms))
    report = build_report(run)
    assert report.tables[0].title == "layer: one pass, change against fused"
    assert any("against unfused torch" in note for note in report.notes)


def test_unknown_traffic_stays_unknown() -> None:
    """One region that cannot tell its bytes makes the arm's sum unknown, not small."""
    rows = [
        RegionBytes(arm="reference", region="attention", touched=None, required=2),
        RegionBytes(arm="reference", region="moe", touched=5, required=3),
    ]
    table = build_report(handmade.run(bytes=rows)).tables[0]
    traffic = [row[3] for row in table.rows]
    unknown = Traffic(touched=None, required=5, ratio=None)
    assert traffic == [unknown, None, unknown]


def test_without_kernels_only_the_layer_is_reported() -> None:
    """A run that was stopped before recording has anchors and no shares."""
    run = handmade.run()
    (table,) = build_report(changed(run, kernels=run.kernels.clear())).tables
    assert [row[1] for row in table.rows] == [
        Interval(40_000, 40_000, 40_000),
        Interval(30_000, 30_000, 30_000),
        Interval(40_100, 40_100, 40_100),
    ]
    assert [row[4:] for row in table.rows] == [(None, None)] * 3


def test_without_samples_there_are_no_numbers() -> None:
    """A run that was stopped before its first round reports dashes, not zeros."""
    run = handmade.run()
    empty = changed(run, kernels=run.kernels.clear(), samples=run.samples.clear())
    (table,) = build_report(empty).tables
    assert [row[1:3] for row in table.rows] == [(None, None)] * 3


@pytest.mark.parametrize(
    ("captures", "rounds", "reason"),
    [(2, 6, "needs 3 captures, has 2"), (3, 1, "needs 6 rounds, has 3")],
)
def test_few_captures_or_rounds_give_no_verdict(
    captures: int, rounds: int, reason: str
) -> None:
    """Too few pairs are `unknown`, and a note says why; none is on the A/A arm."""
    run = handmade.run()
    few = run.samples.filter(pl.col("capture") < captures, pl.col("round") < rounds)
    report = build_report(changed(run, samples=few))
    assert [row[2] for row in report.tables[0].rows] == [
        None,
        Interval(-10_000, -10_000, -10_000, -0.25, "unknown", reason),
        Interval(100, 100, 100, 0.0025),
    ]
    unknown = [note for note in report.notes if "unknown" in note]
    assert unknown == [f"fused: unknown whether it differs: {reason}"]


def test_roles_come_in_the_order_in_which_they_run() -> None:
    """By their first kernel: as text, token_10 would come before token_2."""
    spec = DraftSpec(model="paper-moe", vocab_size=1_000)
    run = handmade.run(study=Study(spec=spec, arms=handmade.study().arms))
    roles = ["token_2", "token_10", "token_1"]
    named = run.kernels.with_columns(
        role=pl.when(pl.col("arm") == "fused").then(
            (pl.col("node") % 3).replace_strict(
                dict(enumerate(roles)), return_dtype=pl.String
            )
        )
    )
    found = build_report(changed(run, kernels=named)).tables
    (table,) = [each for each in found if each.title.startswith("roles of")]
    assert [row[0] for row in table.rows] == roles
