from pathlib import Path
from typing import Any

import msgspec
import pytest

from layerscope.analyze.same_work import observed_differences
from layerscope.errors import InputError
from layerscope.ingest.saving import save
from layerscope.report import Fact, Interval, Kind, Report
from layerscope.report.across_runs import compare_runs
from layerscope.report.comparison import compare_arms
from layerscope.report.gate import gate_runs
from layerscope.run import Run, load
from tests import handmade
from tests.ingest import paper_runs, paper_trace


def rows(report: Report, start: str) -> list[tuple[Any, ...]]:
    """The rows of the first table whose title begins so."""
    return list(next(t for t in report.tables if t.title.startswith(start)).rows)


def elsewhere(run: Run, **changes: Any) -> Run:  # noqa: ANN401 (fields of a device)
    """The same run on another device."""
    header = run.header
    device = msgspec.structs.replace(header.environment.device, **changes)
    environment = msgspec.structs.replace(header.environment, device=device)
    header.environment = environment
    return run


def test_two_arms_of_a_trace() -> None:
    """Each kernel of prefill takes ten times as long, and gaps are the same."""
    report = compare_arms(paper_runs.run(), ("decode", "prefill"))
    assert report.title == "trace paper.json.gz: prefill against decode, observed"
    assert report.headlines == (
        Fact(
            "prefill against decode, observed",
            "a layer 349.0 µs against 34.00 µs, +315.0 µs (+926.5 %): same code "
            "+315 µs",
        ),
    )
    assert rows(report, "ledger of prefill, observed") == [
        ("same code", 315_000.0),
        ("change", 315_000.0),
    ]
    assert rows(report, "ledger of prefill by region") == [
        ("attention", 90_000.0, 90_000.0),
        ("mlp", 180_000.0, 180_000.0),
        ("unassigned", 45_000.0, 45_000.0),
    ]


def test_two_traces_arm_by_arm() -> None:
    """Kernels of one role and another name are faster or slower, not the same code."""
    base, other = paper_runs.run("a"), paper_runs.run("b", scale=2, gate_up="fused")
    report = compare_runs(base, other)
    assert report.title == "b against a, observed"
    label, text = report.headlines[0].label, report.headlines[0].text
    assert label == "decode of b against decode of a, observed"
    assert text == (
        "a layer 69.00 µs against 34.00 µs, +35.00 µs (+102.9 %): faster kernels "
        "+20.0 µs, same code +15.0 µs"
    )
    assert len(report.headlines) == 2
    assert rows(report, "one layer: decode")[1] == (
        "decode of b",
        4,
        4,
        3.0,
        69_000.0,
        1_000.0,
        70_000.0,
        2_000.0,
        288_000.0,
    )


def test_roles_are_beside_each_other() -> None:
    """What changed most comes first, and all add up."""
    base, other = paper_runs.run("a"), paper_runs.run("b", scale=2, gate_up="fused")
    found = rows(compare_runs(base, other), "kernels of decode of b by role")
    assert [(row[0], row[1], row[2], row[-2], row[-1]) for row in found] == [
        ("mlp", "gate_up", None, 20_000.0, 0.0),
        ("attention", "attend", None, 10_000.0, 0.0),
        ("unassigned", None, "down", 5_000.0, 0.0),
        ("total", None, None, 35_000.0, 0.0),
    ]


def test_nothing_observed_has_an_interval() -> None:
    """No cell, no column, and every table and headline says that it was observed."""
    report = compare_runs(paper_runs.run("a"), paper_runs.run("b", scale=2))
    kinds = {column.kind for table in report.tables for column in table.columns}
    cells = [cell for table in report.tables for row in table.rows for cell in row]
    assert Kind.INTERVAL not in kinds
    assert not any(isinstance(cell, Interval) for cell in cells)
    assert all("observed" in table.title for table in report.tables)
    assert all("observed" in fact.label for fact in report.headlines)


def test_a_trace_says_nothing_of_its_work() -> None:
    """That both did the same is for the reader to know, and is said."""
    report = compare_runs(paper_runs.run("a"), paper_runs.run("b"))
    assert any(
        note.startswith("a trace does not tell its work") for note in report.notes
    )
    assert report.headlines[0].text == (
        "a layer 34.00 µs against 34.00 µs, 0 ns (0.00 %)"
    )


def test_notes_of_both_traces_are_told() -> None:
    """Each under the name of its own."""
    warnings = compare_runs(paper_runs.run("a"), paper_runs.run("b")).warnings
    assert "a: doubted: clocks that ran backwards" in warnings
    assert "b: doubted: clocks that ran backwards" in warnings


def test_another_device_is_refused_and_marked_anyway() -> None:
    """As of runs; what only one trace tells is no difference."""
    base = paper_runs.run("a")
    other = elsewhere(paper_runs.run("b"), name="Other GPU", processors=0)
    expected = (
        r"they differ in work or machine: device\.name: Paper GPU against Other GPU; "
        "--anyway compares them all the same"
    )
    with pytest.raises(InputError, match=expected):
        compare_runs(base, other)
    report = compare_runs(base, other, anyway=True)
    assert report.title == (
        "b against a, observed, though they differ in work or machine"
    )
    assert report.differences == ("device.name: Paper GPU against Other GPU",)
    assert report.warnings[0] == (
        "they differ: device.name: Paper GPU against Other GPU"
    )


def test_other_steps_and_layers_are_refused() -> None:
    """A decode step is no prefill step, and four layers are not three."""
    with pytest.raises(
        InputError,
        match="steps: decode against prefill; layers of decode: 4 against 3;",
    ):
        compare_runs(paper_runs.run("a"), paper_runs.run("b"), ("decode", "prefill"))


def test_arms_of_one_trace_alone_are_named() -> None:
    """They are left out, not forgotten."""
    report = compare_runs(paper_runs.run("a"), paper_runs.decode_only())
    assert "not compared, of a alone: prefill" in report.notes


def test_runs_without_common_arms() -> None:
    """Two single arms are compared; else some must be picked."""
    measured = handmade.run()
    with pytest.raises(InputError, match="no arm is in both: reference, fused against"):
        compare_runs(measured, paper_runs.decode_only())


def test_a_measured_run_against_a_trace() -> None:
    """Its passes are compared as observed; the layers of its model must be those."""
    measured, traced = handmade.run(), paper_runs.decode_only()
    pair = ("fused", "decode")
    assert observed_differences(measured.header, traced.header, [pair]) == [
        "layers of fused: 2 against 4"
    ]
    report = compare_runs(measured, traced, pair, anyway=True)
    assert report.headlines[0].text.startswith(
        "a layer 34.00 µs against 30.50 µs, +3.500 µs (+11.5 %): "
    )
    (first, second) = rows(report, "one layer: decode")
    assert (first[-1], second[-1]) == (None, 148_000.0)


def test_an_arm_that_is_not_there() -> None:
    """The line names those that are."""
    with pytest.raises(InputError, match="a has no arm 'verify'; it has decode, "):
        compare_runs(paper_runs.run("a"), paper_runs.run("b"), ("verify", "decode"))
    with pytest.raises(InputError, match=r"decode is named twice$"):
        compare_arms(paper_runs.run(), ("decode", "decode"))


def test_a_trace_gates_nothing() -> None:
    """A regression cannot be told from chance without repetition."""
    with pytest.raises(InputError, match="was made of a trace, which has no anchors"):
        gate_runs(paper_runs.run("a"), paper_runs.run("b"), 0.02)


def test_gaps_in_durations_are_not_told_from_kernels(tmp_path: Path) -> None:
    """One line holds gaps and durations, of traces and of runs saved from them.

    A layer of 69 µs with a gap of 1 µs stands against one of 34 µs without: that the
    gap is shorter is not said, as the records hide it.
    """
    traced = save([paper_trace.swept_trace(paper_trace.touching())], tmp_path / "run")
    slow = paper_runs.run("a", scale=2)
    for other in (traced, load(tmp_path / "run")):
        report = compare_runs(slow, other, ("decode", "decode"))
        assert report.headlines[1].text == (
            "a layer 34.00 µs against 69.00 µs, −35.00 µs (−50.7 %): gaps or kernels, "
            "not separable −35.0 µs"
        )
        assert rows(report, "ledger of decode") == [
            ("gaps or kernels, not separable", -35_000.0),
            ("change", -35_000.0),
        ]
        (last,) = [each for each in report.tables if "by role" in each.title]
        assert [column.key for column in last.columns[-3:]] == [
            *("base_mixed_ns", "other_mixed_ns", "mixed_change_ns"),
        ]
        assert last.rows[-1][-3:] == (69_000.0, 34_000.0, -35_000.0)
        (note,) = [each for each in report.notes if "gaps against" in each]
        told = "gaps against kernels are not separable: durations hold the gaps between"
        assert told in note
