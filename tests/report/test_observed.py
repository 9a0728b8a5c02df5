import json
import math
from typing import Any

import polars as pl
import pytest

from layerscope.ingest.saving import run_of
from layerscope.render.cells import table_title
from layerscope.render.json import render
from layerscope.report import Column, Fact, Interval, Kind, Report, build_report
from layerscope.run import Run
from tests.ingest import paper_runs, paper_trace


def table(report: Report, title: str) -> list[dict[str, Any]]:
    """The rows of the table of that title, by the keys of columns."""
    (found,) = [each for each in report.tables if each.title == title]
    return [
        dict(zip([column.key for column in found.columns], row, strict=True))
        for row in found.rows
    ]


def with_kernels(kernels: pl.DataFrame) -> Run:
    """The run of a trace of these."""
    return run_of([paper_trace.swept_trace(kernels)], "traced")


def test_headlines_tell_what_a_layer_takes() -> None:
    """An arm a line, and every line says that it was observed."""
    report = build_report(paper_runs.run())
    assert report.title == "trace paper.json.gz, observed"
    assert report.headlines == (
        Fact(
            "decode, observed",
            "34.00 µs a layer (mean of 4): gaps 2.94 %, hidden behind other "
            "kernels 2.000 µs",
        ),
        Fact(
            "prefill, observed",
            "349.0 µs a layer (mean of 1): gaps 0.29 %, hidden behind other "
            "kernels 2.000 µs",
        ),
    )


def test_facts_are_those_of_a_trace() -> None:
    """Device, files, steps, what says the regions, and how many records there are."""
    assert build_report(paper_runs.run()).facts == (
        Fact("device", "Paper GPU, sm_90, 132 SMs, 80.00 GB"),
        Fact(
            "trace",
            "paper.json.gz, Kineto JSON, written by torch 2.11.0, begun "
            "2026-09-21T14:13:20+00:00",
        ),
        Fact("steps", "decode: 2 steps of 4 layers; prefill: 1 step of 3 layers"),
        Fact("regions", "of kernel time by rules on names 83.4 %, unassigned 16.6 %"),
        Fact("records", "39 kernels"),
    )


def test_the_table_of_arms() -> None:
    """Steps, layers and a mean layer; only layers between two others are in it."""
    report = build_report(paper_runs.run())
    assert table(report, "a layer of each arm, observed")[0] == {
        "arm": "decode",
        "steps": 2,
        "layers": 4,
        "passes": 4,
        "kernels": 3.0,
        "pass_mean_ns": 34_000.0,
        "pass_median_ns": 34_000.0,
        "gap_mean_ns": 1_000.0,
        "duration_mean_ns": 35_000.0,
        "hidden_mean_ns": 2_000.0,
    }


def test_regions_add_up_to_the_layer() -> None:
    """Unassigned kernels are a row like any other, the last one."""
    report = build_report(paper_runs.run())
    rows = table(report, "regions of decode, a layer, observed")
    assert [(row["region"], row["share_mean_ns"]) for row in rows] == [
        ("attention", 11_000.0),
        ("mlp", 20_000.0),
        ("unassigned", 3_000.0),
        ("total", 34_000.0),
    ]


def test_variants_have_a_table() -> None:
    """Layers with other kernels are told apart; where all are alike there is none."""
    title = "layers of decode by variant, observed"
    report = build_report(paper_runs.run())
    assert title not in [each.title for each in report.tables]
    is_other = pl.when(pl.col("layer") == 2)
    kernels = paper_trace.kernels().with_columns(
        variant=is_other.then(pl.lit("C")).otherwise("variant")
    )
    rows = table(build_report(with_kernels(kernels)), title)
    assert [(row["variant"], row["passes"], row["first"]) for row in rows] == [
        ("A", 2, 1),
        ("C", 2, 2),
    ]


def test_all_layers_are_told_in_one_unit() -> None:
    """Layers of prefill take 349 µs, but one takes 34 µs: all are told in µs."""
    kernels = paper_trace.kernels().with_columns(
        pl.when(pl.col("step_kind") == "prefill")
        .then(pl.col("start_ns", "duration_ns") * 10)
        .otherwise(pl.col("start_ns", "duration_ns"))
    )
    tables = build_report(with_kernels(kernels)).tables
    titles = [table_title(each) for each in tables if "regions of" in each.title]
    assert titles == [
        "regions of decode, a layer, observed, in µs",
        "regions of prefill, a layer, observed, in µs",
    ]


def test_counts_say_that_copies_are_in_them() -> None:
    """Where there are any."""
    kernels = paper_trace.kernels().with_columns(
        kind=pl.when(pl.col("name") == "down")
        .then(pl.lit("copy"))
        .otherwise(pl.col("kind"))
    )
    for found, told in (
        (build_report(with_kernels(kernels)), "kernels + copies"),
        (build_report(paper_runs.run()), "kernels"),
    ):
        counts = {
            column.title
            for table in found.tables
            for column in table.columns
            if column.key == "kernels"
        }
        assert counts == {told}


def test_nothing_has_an_interval_a_verdict_or_an_anchor() -> None:
    """Neither as a cell nor as a column, and every table says what it is."""
    report = build_report(paper_runs.run())
    columns: list[Column] = [each for one in report.tables for each in one.columns]
    cells = [cell for one in report.tables for row in one.rows for cell in row]
    assert not any(column.kind is Kind.INTERVAL for column in columns)
    assert not any("anchor" in column.key for column in columns)
    assert not any(isinstance(cell, Interval) for cell in cells)
    assert all("observed" in one.title for one in report.tables)
    assert not any(isinstance(cell, float) and math.isnan(cell) for cell in cells)
    words = " ".join(fact.label for fact in (*report.headlines, *report.facts))
    assert "limit" not in words
    assert "noise floor" not in words


def test_what_is_known_against_the_trace_is_a_warning() -> None:
    """Beside what has no region, and what is not in the run."""
    assert build_report(paper_runs.run()).warnings == (
        "decode: 14.3 % of the kernel time in layers has no region",
        "prefill: 14.3 % of the kernel time in layers has no region",
        "doubted: clocks that ran backwards",
        "dropped: 2 kernels without a time",
        "3 kernels outside of steps (1.500 µs in sum) are left out of the run",
    )


def test_steps_of_two_layers_are_shown_without_shares() -> None:
    """Nothing is between two others; the report says so instead of failing."""
    kernels = paper_trace.kernels().filter(pl.col("layer").fill_null(0) < 2)
    report = build_report(with_kernels(kernels))
    assert report.headlines == ()
    expected = "decode: no layer is between two others, so none is in shares"
    assert expected in report.warnings
    row = table(report, "a layer of each arm, observed")[0]
    assert (row["layers"], row["passes"], row["pass_mean_ns"]) == (2, 0, None)


def test_a_device_that_is_not_told() -> None:
    """A trace may say nothing of it."""
    run = run_of([paper_trace.swept_trace(devices=())], "traced")
    assert build_report(run).facts[0] == Fact("device", "not told")


@pytest.mark.parametrize("kinds", [("copy", "1 copy"), ("fill", "1 fill")])
def test_records_are_counted_by_kind(kinds: tuple[str, str]) -> None:
    """Kernels, copies and fills apart."""
    kind, told = kinds
    own = pl.when(pl.col("name") == "embed", pl.col("step") == 1)
    kernels = paper_trace.kernels().with_columns(
        kind=own.then(pl.lit(kind)).otherwise(pl.col("kind"))
    )
    facts = build_report(with_kernels(kernels)).facts
    assert facts[-1] == Fact("records", f"38 kernels, {told}")


def test_programs_read_the_same() -> None:
    """JSON has the header, with the spec of a trace, and no number that is none."""
    run = paper_runs.run()
    document = json.loads(render(build_report(run), run))
    assert document["run"]["study"]["spec"]["type"] == "trace"
    assert document["tables"][0]["rows"][0]["pass_mean_ns"] == 34_000
