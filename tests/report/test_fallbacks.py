from dataclasses import replace
from typing import Any

import msgspec
import pytest

from layerscope.report import Fact, Report, build_report
from layerscope.report.comparison import compare_arms
from layerscope.report.fallbacks import (
    fallback_notes,
    idle_switch_notes,
    ran_nothing,
)
from layerscope.report.gate import gate_runs
from layerscope.run import Run
from layerscope.run_header import Decision, IdleSwitch
from layerscope.study import Arm
from tests import handmade

REGIONS = ("attention", "o_proj_all_reduce", "moe")
TOLD = (
    "ran nothing of its own, all 3 regions ran on reference (fused runs at most 8 "
    "rows, not 64)"
)


def decided(*backends: str) -> list[Decision]:
    """Who ran each region of the arm ``fused``."""
    return [
        Decision(
            arm="fused",
            region=region,
            backend=backend,
            reason="" if backend == "fused" else "fused runs at most 8 rows, not 64",
        )
        for region, backend in zip(REGIONS, backends, strict=True)
    ]


def run_with(*backends: str, **changes: Any) -> Run:  # noqa: ANN401 (of the header)
    """The hand-made run with other decisions."""
    header = handmade.header(decisions=decided(*backends), **changes)
    return replace(handmade.run(), header=header)


def left() -> Run:
    """In which the fallback ran all of one arm."""
    return run_with("reference", "reference", "reference")


def own_regions(report: Report) -> list[object]:
    """The last cells of the table of arms."""
    table = report.tables[0]
    assert table.columns[-1].key == "own_regions"
    return [row[-1] for row in table.rows]


def test_an_arm_with_one_region_of_its_own_ran_something() -> None:
    """Nor is one that nobody decided on."""
    assert ran_nothing(handmade.header(decisions=[])) == {}
    run = run_with("reference", "fused", "reference")
    assert ran_nothing(run.header) == {}
    report = build_report(run)
    assert "own_regions" not in [column.key for column in report.tables[0].columns]
    assert "fused: MoE ran on reference (fused runs at most 8 rows, not 64)" in (
        report.notes
    )


def test_no_gain_is_claimed_for_an_arm_that_ran_nothing() -> None:
    """Headline, table, note and warning say so, and there is no verdict."""
    report = build_report(left())
    assert report.headlines[0] == Fact(
        "fused against unfused torch (reference)", f"no gain is claimed: it {TOLD}"
    )
    assert own_regions(report) == [None, "none of 3", None]
    change = report.tables[0].rows[1][2]
    assert (getattr(change, "value", None), getattr(change, "verdict", None)) == (
        -10_000,
        "",
    )
    assert f"fused {TOLD}" in report.notes
    assert (
        "fused: changes of its regions have no verdict: it ran nothing of its own"
        in (report.notes)
    )
    warning = "fused ran nothing of its own: its figures are the fallback's"
    assert warning in report.warnings
    assert not any("serving kernel chain" in note for note in report.notes)


def test_a_base_that_ran_nothing_is_called_what_it_was() -> None:
    """Against the fallback under another name is against unfused torch."""
    arms = (Arm(backend="fused"), Arm(backend="reference"))
    study = handmade.study()
    renamed = type(study)(spec=study.spec, arms=arms, lengths=study.lengths)
    run = run_with("reference", "reference", "reference", study=renamed)
    (headline, *_) = build_report(run).headlines
    assert headline.label == (
        "reference against unfused torch (fused, which ran nothing of its own)"
    )
    assert set(ran_nothing(run.header)) == {"fused", "fused (A/A)"}


def test_two_arms_and_two_runs_say_so_too() -> None:
    """Wherever a figure of such an arm is compared."""
    run = left()
    report = compare_arms(run, ("reference", "fused"))
    assert report.headlines[0].text == f"no gain is claimed: it {TOLD}"
    assert f"fused {TOLD}" in report.notes
    gated = gate_runs(run, handmade.run(), 0.02)
    assert gated.report.warnings[0] == f"{run.path}: fused {TOLD}"


@pytest.mark.parametrize(
    ("reasons", "told"),
    [(("a", "a", "a"), "(a)"), (("a", "b", "a"), "(a; b)")],
)
def test_each_reason_is_told_once(reasons: tuple[str, ...], told: str) -> None:
    """However many regions have it."""
    decisions = [
        Decision(arm="fused", region=region, backend="reference", reason=reason)
        for region, reason in zip(REGIONS, reasons, strict=True)
    ]
    found = ran_nothing(handmade.header(decisions=decisions))
    assert found["fused"].told.endswith(told)


def idle_switch(backend: str, switch: str, reason: str) -> IdleSwitch:
    """One that changes nothing."""
    return IdleSwitch(backend=backend, switch=switch, reason=reason)


def with_idle_switches(**changes: Any) -> Run:  # noqa: ANN401 (of the header)
    """The hand-made run, in which three switches of ``fused`` change nothing."""
    idle = [
        idle_switch("fused", "early", "there are no experts"),
        idle_switch("fused", "bitmap", "there are no experts"),
        idle_switch("fused", "norm", "qkv has 5120 outputs, more than 2112"),
        idle_switch("other", "norm", "it has no norm"),
    ]
    header = handmade.header(idle_switches=idle, **changes)
    return replace(handmade.run(), header=header)


def test_switches_that_change_nothing_are_told_of_their_arm() -> None:
    """A line a reason; none of an arm whose backend has none, or of an older run."""
    lines = [
        "fused: early and bitmap change nothing here: there are no experts",
        ("fused: norm changes nothing here: qkv has 5120 outputs, more than 2112"),
    ]
    run = with_idle_switches()
    notes = build_report(run).notes
    assert [note for note in notes if "nothing here" in note] == lines
    compared = compare_arms(run, ("reference", "fused")).notes
    assert [note for note in compared if "nothing here" in note] == lines
    assert not [n for n in build_report(handmade.run()).notes if "nothing here" in n]


def test_an_arm_that_asks_for_such_a_switch_has_the_line() -> None:
    """Each arm of the backend, whatever its switches are."""
    turned = Arm(backend="fused", switches={"norm": "on"})
    study = handmade.study()
    arms = (*study.arms, turned)
    run = with_idle_switches(study=msgspec.structs.replace(study, arms=arms))
    header = run.header
    assert [
        note.partition(" changes")[0]
        for note in idle_switch_notes(header, [arm.name for arm in arms])
        if "changes" in note
    ] == ["fused: norm", "fused:norm=on: norm"]


def test_of_an_arm_that_ran_nothing_no_switch_is_told() -> None:
    """That it ran nothing says it all."""
    run = with_idle_switches(decisions=decided(*["reference"] * 3))
    assert not [n for n in build_report(run).notes if "nothing here" in n]


def test_arms_that_are_not_compared_have_no_notes() -> None:
    """An arm of switches, or with stamps, leaves what its backend leaves anyway."""
    study, name = handmade.study(), "fused all off"
    more = msgspec.structs.replace(
        study,
        switch_arms=(Arm(backend="fused", label=name),),
        stamp_arms=(Arm(backend="fused", stamps=True),),
    )
    others = [arm.name for arm in (*more.switch_arms, *more.stamp_arms)]
    for backends in (("reference", "fused", "reference"), ("reference",) * 3):
        decisions = decided(*backends)
        again = [
            msgspec.structs.replace(one, arm=other)
            for other in others
            for one in decisions
        ]
        plain = fallback_notes(handmade.header(study=study, decisions=decisions))
        header = handmade.header(study=more, decisions=[*decisions, *again])
        assert [*fallback_notes(header)] == [*plain] != []


def test_a_switch_of_the_other_problem_is_told_of_arms_that_set_it() -> None:
    """Of all others the line would be in every report, and hide what matters."""
    drafted = IdleSwitch(
        backend="fused", switch="once", reason="it is of the draft", of_other=True
    )
    turned = Arm(backend="fused", switches={"once": "off"})
    study = handmade.study()
    arms = (*study.arms, turned)
    header = handmade.header(
        study=msgspec.structs.replace(study, arms=arms), idle_switches=[drafted]
    )
    assert [*idle_switch_notes(header, [arm.name for arm in arms])] == [
        "fused:once=off: once changes nothing here: it is of the draft"
    ]
