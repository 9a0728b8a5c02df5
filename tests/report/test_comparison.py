from dataclasses import replace

import msgspec
import pytest

from layerscope.errors import InputError
from layerscope.report import Interval, build_report
from layerscope.report.comparison import compare_arms
from layerscope.study import CallableSpec
from tests import edited, handmade, switched


def test_two_arms_are_told_with_their_ledger() -> None:
    """The same headline and ledger as the report of the run has, and little else."""
    whole = build_report(edited.run())
    report = compare_arms(edited.run(), ("reference", "fused"))
    assert report.title == "paper-moe, layer 0: fused against unfused torch (reference)"
    assert report.headlines == whole.headlines[:1]
    assert [fact.label for fact in report.facts] == ["run", "noise floor"]
    arms, *ledger = report.tables
    assert arms.rows == (
        ("reference", Interval(40_000, 40_000, 40_000), None),
        (
            "fused",
            Interval(30_000, 30_000, 30_000),
            Interval(-10_000, -10_000, -10_000, -0.25, "faster"),
        ),
    )
    assert ledger == [
        table
        for table in whole.tables
        if table.title.startswith(("ledger of", "overlap of"))
    ]
    assert len(ledger) == 3
    assert report.notes[0].startswith("every change to or from reference is against")


def test_the_other_way_round_the_change_has_the_other_sign() -> None:
    """From fused to reference, 10,000 ns are lost; overlap goes with 4,000 of them."""
    report = compare_arms(edited.run(), ("fused", "reference"))
    (headline,) = report.headlines
    assert headline.label == "reference against fused"
    assert headline.text.startswith(
        "+10.0 µs (+33.3 %, 95 % +10.0 … +10.0): overlap +4.0, "
    )


def test_an_arm_and_its_repetition_may_be_compared() -> None:
    """The A/A pair has no line on unfused torch: both sides are."""
    report = compare_arms(handmade.run(), ("reference", "reference (A/A)"))
    assert report.headlines[0].text.startswith("no difference, within the noise floor")
    assert not any("unfused" in note for note in report.notes)


@pytest.mark.parametrize("arms", [("reference", "fusde"), ("fusde", "reference")])
def test_an_unknown_arm_is_refused(arms: tuple[str, str]) -> None:
    """The line names those that the run has."""
    with pytest.raises(InputError) as caught:
        compare_arms(handmade.run(), arms)
    assert str(caught.value) == (
        "paper-run has no arm 'fusde'; it has reference, fused, reference (A/A)"
    )


def test_an_arm_of_switches_is_compared_with_no_other() -> None:
    """It is in the run, and the line says where to look for it."""
    run = switched.run()
    with pytest.raises(InputError) as caught:
        compare_arms(run, ("paper", switched.OFF))
    assert str(caught.value) == (
        "'paper all off' is there for --each-switch or --stamps, and compared with no "
        f"other arm; its figures: layerscope show {run.path}"
    )


def test_an_arm_is_not_compared_with_itself() -> None:
    """It would differ by nothing at all; the A/A capture is what can differ."""
    with pytest.raises(InputError) as caught:
        compare_arms(handmade.run(), ("fused", "fused"))
    assert str(caught.value) == (
        "fused is named twice; the same arm captured again is 'reference (A/A)'"
    )


def test_a_draft_is_a_part_where_it_has_both_arms() -> None:
    """The draft's ledger stands below the layer's; without the arms there is none."""
    run = replace(edited.run(), draft=handmade.run())
    arms = ("reference", "fused")
    (part,) = compare_arms(run, arms).parts
    assert part == compare_arms(handmade.run(), arms)
    study = msgspec.structs.replace(handmade.study(), arms=handmade.study().arms[:1])
    assert compare_arms(replace(run, draft=handmade.run(study=study)), arms).parts == ()


def test_callables_are_compared_by_their_own_names() -> None:
    """A callable that is called reference is no unfused torch."""
    spec = CallableSpec(inputs=(), tolerance=0.1)
    study = msgspec.structs.replace(handmade.study(), spec=spec)
    report = compare_arms(edited.run(study=study), ("reference", "fused"))
    assert report.title == "callables: fused against reference"
    assert report.tables[0].title == "call: one pass"
    assert not any("unfused" in note for note in report.notes)


def test_a_partial_run_says_so() -> None:
    """What was measured is compared, and a warning says that it is not all."""
    run = handmade.run(status="partial", status_reason="interrupted")
    report = compare_arms(run, ("reference", "fused"))
    assert report.warnings == ("paper-run is partial: interrupted",)
