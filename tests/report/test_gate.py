from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from layerscope.analyze.across_runs import Outcome
from layerscope.errors import InputError
from layerscope.report import Fact
from layerscope.report.gate import gate_runs
from layerscope.run import Run
from layerscope.run_header import IdleSwitch
from tests import handmade


def recorded(name: str, by_ns: int = 0, captures: int = 5) -> Run:
    """The hand-made run with more captures, its fused arm slower by `by_ns`."""
    run = handmade.run()
    more = pl.when(pl.col("arm") == "fused").then(pl.col("passes") * by_ns).otherwise(0)
    first = run.samples.filter(pl.col("capture") == 0)
    samples = pl.concat(
        [
            first.with_columns(capture=pl.lit(capture, pl.Int64))
            for capture in range(captures)
        ]
    ).with_columns(duration_ns=pl.col("duration_ns") + more)
    return replace(run, samples=samples, path=Path(name))


def test_a_run_that_is_as_fast_passes() -> None:
    """One line an arm, with both anchors, the change, and what it is held against."""
    found = gate_runs(recorded("new"), recorded("old"), 0.02)
    assert found.outcome is Outcome.PASS
    assert found.report.title == "paper-moe, layer 0: pass"
    assert found.report.headlines == (
        Fact(
            "pass: reference",
            "40.00 µs against 40.00 µs, 0 ns (0.00 %, 95 % 0 … 0); allowed +2.00 %, "
            "noise floor 100 ns",
        ),
        Fact(
            "pass: fused",
            "30.00 µs against 30.00 µs, 0 ns (0.00 %, 95 % 0 … 0); allowed +2.00 %, "
            "noise floor 100 ns",
        ),
    )


def test_a_regression_beyond_all_fails() -> None:
    """900 ns are 3 % of 30,000, and beyond the noise floor of 100."""
    found = gate_runs(recorded("new", 900), recorded("old"), 0.02)
    assert found.outcome is Outcome.FAIL
    assert found.report.headlines[1] == Fact(
        "fail: fused",
        "30.90 µs against 30.00 µs, +900 ns (+3.00 %, 95 % +900 … +900); allowed "
        "+2.00 %, noise floor 100 ns",
    )
    assert gate_runs(recorded("new", 900), recorded("old"), 0.03).outcome == "pass"


def test_too_few_captures_are_unknown() -> None:
    """The line says how many there are, and a failure of another arm comes first."""
    found = gate_runs(recorded("new", 900, captures=4), recorded("old"), 0.02)
    assert found.outcome is Outcome.UNKNOWN
    assert found.report.headlines[1].text.endswith(
        "noise floor 100 ns; needs 5 captures of both, has 4"
    )


def test_the_worst_arm_decides() -> None:
    """A failure comes before what is unknown, and that before a pass."""
    slow, old = recorded("new", 900), recorded("old")
    reference = pl.col("arm") == "reference"
    fewer = slow.samples.filter(~reference | (pl.col("capture") < 4))
    mixed = replace(slow, samples=fewer)
    assert gate_runs(mixed, old, 0.02).outcome is Outcome.FAIL
    assert gate_runs(mixed, old, 0.05).outcome is Outcome.UNKNOWN
    assert gate_runs(mixed, old, 0.05, ("fused",)).outcome is Outcome.PASS


def test_the_numbers_are_in_a_table() -> None:
    """For programs: the comparison, what the gate says, and why."""
    report = gate_runs(recorded("new", 900), recorded("old"), 0.02).report
    (table,) = report.tables
    assert [column.key for column in table.columns] == [
        *("arm", "base_ns", "other_ns", "change_ns", "floor_ns", "outcome", "reason")
    ]
    assert [row[-2:] for row in table.rows] == [
        ("pass", "not slower by more than is allowed"),
        ("fail", "slower by more than is allowed"),
    ]


def test_an_arm_of_one_run_only() -> None:
    """One that is gone is an error; one that is new is not judged, and told."""
    run = recorded("new")
    study = msgspec.structs.replace(handmade.study(), arms=handmade.study().arms[:1])
    fewer = recorded("old")
    fewer = replace(fewer, header=handmade.header(study=study))
    assert gate_runs(run, fewer, 0.02).report.notes == (
        "fused is not judged: old has no such arm",
    )
    with pytest.raises(InputError) as caught:
        gate_runs(fewer, run, 0.02)
    assert str(caught.value) == (
        "fused is in new and not in old; choose arms of both with --arm"
    )
    assert gate_runs(fewer, run, 0.02, ("reference",)).outcome is Outcome.PASS
    with pytest.raises(InputError, match="old has no arm 'fused'"):
        gate_runs(run, fewer, 0.02, ("fused",))


def test_runs_that_differ_are_refused() -> None:
    """A gate has no way around it."""
    other = recorded("new")
    study = msgspec.structs.replace(handmade.study(), seed=1)
    other = replace(other, header=handmade.header(study=study))
    with pytest.raises(InputError) as caught:
        gate_runs(other, recorded("old"), 0.02)
    assert str(caught.value) == (
        "the runs differ in work or machine: seed: 0 against 1; record both runs "
        "alike, on one machine"
    )


def test_drafts_are_judged_too() -> None:
    """A draft that became slower fails the run it belongs to."""
    old = replace(recorded("old"), draft=recorded("old/draft"))
    new = replace(recorded("new"), draft=recorded("new/draft", 900))
    found = gate_runs(new, old, 0.02)
    assert found.outcome is Outcome.FAIL
    assert [fact.label for fact in found.report.headlines] == [
        "pass: reference",
        "pass: fused",
        "pass: reference, draft",
        "fail: fused, draft",
    ]
    assert [table.title for table in found.report.tables] == [
        "layer: one pass, not paired",
        "draft: one pass, not paired",
    ]


def test_a_draft_of_one_run_only_is_told() -> None:
    """A pass of the layer alone must not look like one of both."""
    old = replace(recorded("old"), draft=recorded("old/draft"))
    found = gate_runs(recorded("new"), old, 0.02)
    assert found.outcome is Outcome.PASS
    assert found.report.notes == (
        "the draft of reference is not judged: new has none",
        "the draft of fused is not judged: new has none",
    )
    assert gate_runs(recorded("new"), recorded("old"), 0.02).report.notes == ()


def test_a_pass_that_is_not_shown_says_so() -> None:
    """Captures that differ by 300 ns may hide a regression of more than 0.1 %."""
    wobble = pl.col("passes") * (pl.col("capture") - 2) * 300
    run = recorded("new")
    wide = run.samples.with_columns(duration_ns=pl.col("duration_ns") + wobble)
    found = gate_runs(replace(run, samples=wide), recorded("old"), 0.001, ("fused",))
    (headline,) = found.report.headlines
    assert headline.label == "pass: fused"
    assert headline.text.endswith(
        "noise floor 100 ns; the interval reaches beyond what is allowed"
    )


def test_switches_that_change_nothing_are_told_of_judged_arms_and_drafts() -> None:
    """Once where both runs have them."""

    def idle(run: Run, reason: str) -> Run:
        switch = IdleSwitch(backend="fused", switch="early", reason=reason)
        header = msgspec.structs.replace(run.header, idle_switches=[switch])
        return replace(run, header=header)

    new, old = (
        replace(
            idle(recorded(name), "few rows"), draft=idle(recorded(name), "few tokens")
        )
        for name in ("new", "old")
    )
    lines = [
        "fused: early changes nothing here: few rows",
        "draft: fused: early changes nothing here: few tokens",
    ]
    for arms, expected in (((), lines), (("fused",), lines), (("reference",), [])):
        notes = gate_runs(new, old, 0.02, arms).report.notes
        assert [note for note in notes if "nothing here" in note] == expected
