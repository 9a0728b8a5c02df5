from collections.abc import Sequence

import pytest

from layerscope.report import build_report
from layerscope.report.document import Fact
from layerscope.report.launches import (
    launch_facts,
    launch_notes,
    launch_warnings,
)
from layerscope.run_header import LaunchCost, LaunchPhase, RunHeader
from tests import edited, handmade

Noted = Sequence[tuple[LaunchPhase, float]]


def header(noted: Noted) -> RunHeader:
    """Of a run in which that was noted."""
    return handmade.header(
        launch_costs=[
            LaunchCost(phase=phase, kernel_ns=ns, low_ns=ns - 1, high_ns=ns + 1)
            for phase, ns in noted
        ]
    )


def test_what_a_small_kernel_took_is_told_by_phase() -> None:
    """The least and the most where they differ."""
    noted: Noted = [
        *(("anchor", 744.4), ("anchor", 741.2), ("after", 742.9)),
        *(("bounds", 743.3), ("bounds", 742.8), ("reads", 916.0), ("reads", 918.3)),
    ]
    assert [*launch_facts(header(noted))] == [
        Fact(
            "launches",
            "a small kernel after another 741 ns … 744 ns (anchors), 743 ns (anchors "
            "again), 743 ns (bounds), 916 ns … 918 ns (reads)",
        )
    ]


def test_nothing_is_told_where_nothing_was_noted() -> None:
    """As on a CPU."""
    assert [*launch_facts(header([]))] == []
    assert [*launch_warnings(header([]))] == []


def test_one_speed_is_no_warning() -> None:
    """Captures differ by little."""
    noted: Noted = [("anchor", 741.0), ("after", 744.0), ("bounds", 739.0)]
    assert [*launch_warnings(header(noted))] == []


@pytest.mark.parametrize(
    ("phase", "named", "doubt"),
    [
        (
            "after",
            "anchors again",
            "anchors taken again do not compare with those before",
        ),
        ("bounds", "bounds", "how far an arm is from a bound is not known so well"),
    ],
)
def test_what_was_of_another_speed_than_the_anchors_is_a_warning(
    phase: LaunchPhase, named: str, doubt: str
) -> None:
    """With what does not compare for it."""
    expected = (
        f"{named}: kernels were launched at another speed than for anchors: a small "
        f"one took 918 ns after another, not 741 ns; {doubt}"
    )
    assert [*launch_warnings(header([("anchor", 741.0), (phase, 918.0)]))] == [expected]


def test_anchors_of_two_speeds_are_a_warning() -> None:
    """One, for it is not known what the other parts should be held against."""
    noted: Noted = [("anchor", 741.0), ("anchor", 918.0)]
    others: Noted = [("after", 741.0), ("bounds", 918.0), ("reads", 918.0)]
    assert [*launch_notes(header([*noted, *others]))] == []
    (line,) = launch_warnings(header([*noted, *others]))
    assert line == (
        "kernels were launched at two speeds while anchors were measured: a small "
        "one took 741 ns … 918 ns after another; captures do not compare"
    )


@pytest.mark.parametrize(("reads_ns", "side"), [(918.0, "longer"), (641.0, "shorter")])
def test_what_reads_of_another_speed_are_is_a_note(reads_ns: float, side: str) -> None:
    """Nothing else rests on them alone, and the reader can do nothing about it."""
    noted = header([("anchor", 741.0), ("bounds", 744.0), ("reads", reads_ns)])
    assert [*launch_warnings(noted)] == []
    (line,) = launch_notes(noted)
    assert line == (
        f"cold reads: beside them a small kernel took {reads_ns:.0f} ns after another, "
        f"beside the anchors 741 ns; so a read of few bytes seems {side} than it would "
        "be for an arm"
    )


@pytest.mark.parametrize(
    "noted",
    [
        [("anchor", 741.0), ("reads", 744.0)],
        [("anchor", 741.0), ("bounds", 918.0)],
        [("reads", 918.0)],
        [],
    ],
)
def test_reads_of_the_speed_of_the_anchors_need_no_note(noted: Noted) -> None:
    """Nor reads that were not measured, or beside nothing."""
    assert [*launch_notes(header(noted))] == []


def test_bounds_of_a_run_that_noted_nothing_are_in_doubt() -> None:
    """As of runs of earlier versions, whose bounds were of the slower speed."""
    (line,) = launch_warnings(handmade.header(bounds=edited.BOUNDS))
    assert line == (
        "at which speed kernels were launched while bounds were measured was not "
        "noted: bounds may be longer than they would be for the arms"
    )


def test_a_partial_run_without_anchors_has_no_such_warning() -> None:
    """There is nothing to hold the others against."""
    assert [*launch_warnings(header([("reads", 918.0)]))] == []


def test_a_report_has_both() -> None:
    """The fact at its place among those on quality, the warning among the others."""
    report = build_report(
        handmade.run(
            launch_costs=header([("anchor", 741.0), ("after", 918.0)]).launch_costs
        )
    )
    names = [fact.label for fact in report.facts]
    assert names.index("launches") == names.index("anchors again") + 1
    assert any(line.startswith("anchors again: kernels") for line in report.warnings)
