from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from layerscope.errors import InputError
from layerscope.report import Fact, Interval
from layerscope.report.across_runs import compare_runs
from layerscope.run import Run
from layerscope.run_header import IdleSwitch
from layerscope.study import Arm
from tests import handmade


def later(by_ns: int = 300, **changes: Any) -> Run:  # noqa: ANN401 (of the header)
    """The hand-made run once more, its fused arm slower by `by_ns` a pass."""
    run = handmade.run(created="2026-11-30T12:00:00Z", **changes)
    more = pl.when(pl.col("arm") == "fused").then(pl.col("passes") * by_ns).otherwise(0)
    samples = run.samples.with_columns(duration_ns=pl.col("duration_ns") + more)
    return replace(run, samples=samples, path=Path("later"))


def wider() -> Run:
    """A later run of eight rows."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, requests=2, draft_tokens=3)
    return later(study=msgspec.structs.replace(study, spec=spec))


def on(run: Run, uuid: str) -> Run:
    """The run, on the device `uuid`."""
    facts = msgspec.structs.replace(run.header.environment.device, uuid=uuid)
    where = msgspec.structs.replace(run.header.environment, device=facts)
    header = msgspec.structs.replace(run.header, environment=where)
    return replace(run, header=header)


@pytest.mark.parametrize(
    ("before", "after", "told"), [("a", "b", 1), ("a", "a", 0), ("", "b", 0)]
)
def test_two_devices_of_one_kind_are_told(before: str, after: str, told: int) -> None:
    """Where both are known: part of a small change may be theirs."""
    report = compare_runs(on(handmade.run(), before), on(later(), after))
    name = handmade.run().header.environment.device.name
    note = f"the runs are of two devices {name}, which need not be equally fast"
    assert report.notes.count(note) == told


def test_arms_of_equal_names_are_compared() -> None:
    """Every arm but the A/A one, with both anchors, the change, and the floor."""
    report = compare_runs(handmade.run(), later())
    assert report.title == "paper-moe, layer 0: later against paper-run"
    assert report.headlines == (
        Fact(
            "reference",
            "no difference, the interval includes zero; 0 ns (0.00 %, 95 % 0 … 0)",
        ),
        Fact("fused", "slower; +300 ns (+1.00 %, 95 % +300 … +300)"),
    )
    assert report.facts == (
        Fact("before", "paper-run, of 2026-11-29T12:00:00Z"),
        Fact("run", "later, of 2026-11-30T12:00:00Z"),
    )
    (table,) = report.tables
    assert [column.key for column in table.columns] == [
        *("arm", "base_ns", "other_ns", "change_ns", "floor_ns")
    ]
    assert table.rows[1] == (
        "fused",
        Interval(30_000, 30_000, 30_000),
        Interval(30_300, 30_300, 30_300),
        Interval(300, 300, 300, 0.01, "slower"),
        100,
    )
    assert (report.differences, report.warnings) == ((), ())


def test_one_arm_of_each_may_be_picked() -> None:
    """The first is of the first run, and changes to or from unfused torch are named."""
    report = compare_runs(handmade.run(), later(), ("reference", "fused"))
    (headline,) = report.headlines
    assert headline == Fact(
        "fused against reference", "faster; −9.70 µs (−24.2 %, 95 % −9.70 … −9.70)"
    )
    assert any("against unfused torch" in note for note in report.notes)


def test_runs_that_differ_are_refused_by_field() -> None:
    """The line names each field with both values."""
    with pytest.raises(InputError) as caught:
        compare_runs(handmade.run(), wider())
    assert str(caught.value) == (
        "the runs differ in work or machine: rows: 6 against 8; requests: 1 against 2; "
        "draft_tokens: 5 against 3; --anyway compares them all the same"
    )


def test_what_is_compared_anyway_is_marked() -> None:
    """In the title, as data, and as a warning a field."""
    report = compare_runs(handmade.run(), wider(), anyway=True)
    assert report.title.endswith(
        "against paper-run, though they differ in work or machine"
    )
    assert report.differences == (
        "rows: 6 against 8",
        "requests: 1 against 2",
        "draft_tokens: 5 against 3",
    )
    assert report.warnings == tuple(
        f"the runs differ: {each}" for each in report.differences
    )
    assert len(report.headlines) == 2


def test_runs_without_a_common_arm_are_refused() -> None:
    """Nothing is compared that was not asked for."""
    run = handmade.run()
    study = msgspec.structs.replace(run.header.study, arms=(Arm(backend="mega"),))
    with pytest.raises(InputError) as caught:
        compare_runs(run, later(study=study))
    assert str(caught.value) == (
        "no arm is in both runs: reference, fused, reference (A/A) against mega, "
        "mega (A/A); pick two with --arms"
    )


def test_an_arm_that_its_run_does_not_have_is_refused() -> None:
    """Each of the pair is looked for in its own run."""
    with pytest.raises(InputError, match="later has no arm 'mega'"):
        compare_runs(handmade.run(), later(), ("fused", "mega"))


def test_drafts_are_compared_as_a_part() -> None:
    """Where both runs have one with such arms; their own differences mark them."""
    base = replace(handmade.run(), draft=handmade.run())
    (part,) = compare_runs(base, replace(later(), draft=later(600))).parts
    assert part.headlines[1].text == "slower; +600 ns (+2.00 %, 95 % +600 … +600)"
    (part,) = compare_runs(base, replace(later(), draft=wider())).parts
    assert part.differences[0] == "rows: 6 against 8"
    assert compare_runs(base, later()).parts == ()


def test_partial_runs_say_so() -> None:
    """Either may be; the line names which."""
    stopped = later(status="partial", status_reason="interrupted")
    report = compare_runs(handmade.run(), stopped)
    assert report.warnings == ("later is partial: interrupted",)


def idle(reason: str) -> IdleSwitch:
    """A switch of ``fused`` that changes nothing."""
    return IdleSwitch(backend="fused", switch="early", reason=reason)


def told(base: Run, other: Run, arms: tuple[str, str] | None = None) -> list[str]:
    """The notes on switches."""
    notes = compare_runs(base, other, arms).notes
    return [note for note in notes if "nothing here" in note]


def test_switches_that_change_nothing_in_both_runs_are_told_once() -> None:
    """And only of arms that are compared."""
    switches = [idle("few experts")]
    base, other = (make(idle_switches=switches) for make in (handmade.run, later))
    line = "fused: early changes nothing here: few experts"
    assert told(base, other) == [line]
    assert told(base, other, ("reference", "reference")) == []


def test_a_switch_that_changes_nothing_in_one_run_is_told_of_that() -> None:
    """The change may be that of the switch."""
    line = "fused: early changes nothing here"
    few, wide = (handmade.run(idle_switches=[idle(why)]) for why in ("few", "wide"))
    other = later(idle_switches=[idle("few")])
    assert told(handmade.run(), other) == [f"later: {line}: few"]
    assert told(few, later()) == [f"paper-run: {line}: few"]
    assert told(wide, other) == [f"paper-run: {line}: wide", f"later: {line}: few"]
