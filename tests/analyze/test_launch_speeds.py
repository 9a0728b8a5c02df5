import pytest

from layerscope.analyze.launch_speeds import (
    Span,
    are_bounds_of_anchors,
    is_apart,
    spans,
)
from layerscope.run_header import LaunchCost, LaunchPhase


def cost(phase: LaunchPhase, kernel_ns: float) -> LaunchCost:
    return LaunchCost(
        phase=phase, kernel_ns=kernel_ns, low_ns=kernel_ns - 1, high_ns=kernel_ns + 1
    )


def test_a_phase_spans_what_was_noted_in_it() -> None:
    """Whatever came between; phases stand in the order in which they began."""
    noted = [
        *(cost("anchor", 744.0), cost("anchor", 741.0), cost("after", 743.0)),
        *(cost("reads", 918.0), cost("bounds", 742.0), cost("reads", 744.0)),
    ]
    found = spans(noted)
    assert found == {
        "anchor": Span(741.0, 744.0),
        "after": Span(743.0, 743.0),
        "reads": Span(744.0, 918.0),
        "bounds": Span(742.0, 742.0),
    }
    assert [*found] == ["anchor", "after", "reads", "bounds"]


def test_a_run_that_noted_nothing_has_no_spans() -> None:
    """As runs of a CPU and older ones."""
    assert spans([]) == {}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Span(741, 744), Span(743, 743), False),
        (Span(741, 744), Span(918, 921), True),
        (Span(918, 921), Span(741, 744), True),
        (Span(741, 744), Span(742, 918), True),
        (Span(741, 918), Span(741, 918), True),
        (Span(1_000, 1_000), Span(1_100, 1_100), False),
        (Span(1_000, 1_000), Span(1_101, 1_101), True),
    ],
)
def test_speeds_are_apart_where_one_is_a_tenth_slower(
    one: Span, other: Span, *, expected: bool
) -> None:
    """Either of the two, and if only some of its captures are."""
    assert is_apart(one, other) is expected


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([cost("anchor", 741.0), cost("bounds", 744.0)], True),
        ([cost("anchor", 741.0), cost("bounds", 744.0), cost("reads", 918.0)], True),
        ([cost("anchor", 741.0), cost("bounds", 744.0), cost("bounds", 918.0)], False),
        ([cost("anchor", 741.0), cost("after", 744.0)], False),
        ([cost("bounds", 741.0)], False),
        ([], False),
    ],
)
def test_bounds_are_held_against_arms_where_both_were_of_one_speed(
    noted: list[LaunchCost], *, expected: bool
) -> None:
    """It must have been noted of both; reads are another matter."""
    assert are_bounds_of_anchors(noted) is expected
