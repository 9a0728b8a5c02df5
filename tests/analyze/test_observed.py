import math
from dataclasses import replace
from typing import NamedTuple

import hypothesis.strategies as st
import polars as pl
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.facing import observed_passes
from layerscope.analyze.observed import Observed, ledger_between, observe
from layerscope.ingest.saving import run_of
from layerscope.schema import KERNELS
from tests import handmade
from tests.ingest import paper_trace


class Kernel(NamedTuple):
    """A kernel, the gap before it (negative where it overlaps), and its duration."""

    region: str
    name: str
    role: str | None
    gap_ns: int
    duration_ns: int


ATTEND = Kernel("attention", "attend", "attend", 100, 1_000)
QUICK = Kernel("attention", "flash", "attend", 40, 700)
UP = Kernel("mlp", "up", None, 50, 500)
DOWN = Kernel("mlp", "down", None, 0, 300)


def replays(*steps: list[list[Kernel]], arm: str = "decode") -> pl.DataFrame:
    """`schema.KERNELS` of steps of layers, one after another."""
    rows = []
    for step, layers in enumerate(steps):
        now_ns = node = 0
        for index, layer in enumerate(layers):
            for each in layer:
                start_ns = max(0, now_ns + each.gap_ns)
                rows.append(
                    dict.fromkeys(KERNELS)
                    | {"arm": arm, "experiment": "captured", "capture": 0}
                    | {"round": step, "replay": step, "pass_index": index}
                    | {"node": node, "kind": "kernel", "name": each.name}
                    | {"region": each.region, "role": each.role, "stream": 7}
                    | {"pass_start_ns": 0, "start_ns": start_ns}
                    | {"duration_ns": each.duration_ns}
                )
                now_ns, node = max(now_ns, start_ns + each.duration_ns), node + 1
    return pl.DataFrame(rows, schema=KERNELS)


def between(base: pl.DataFrame, other: pl.DataFrame) -> Observed:
    """The observed difference, under the names base and other."""
    sides = (
        observed_passes(frame, "decode", name)
        for frame, name in ((base, "base"), (other, "other"))
    )
    return observe(*sides)


def lines(ledger: Ledger) -> dict[Cause, float]:
    """The causes that something counts for."""
    return {line.cause: line.change.value for line in ledger.lines if line.change.value}


def test_gaps_and_exclusive_times_by_matched_role() -> None:
    """The same role is faster by 300 ns in itself, and its gap is shorter by 60 ns."""
    found = between(
        replays([[ATTEND, UP]] * 4), replays([[QUICK, UP, DOWN]] * 4)
    ).ledger
    assert lines(found) == {
        Cause.FASTER: -300.0,
        Cause.GAPS: -60.0,
        Cause.ADDED: 300.0,
    }
    assert found.base_ns == 1_650.0
    assert found.change.value == -60.0
    assert found.residual.value == 0.0
    assert found.basis == "observed"


def test_gaps_that_records_do_not_tell_from_kernels() -> None:
    """Where one side is so, one line has all of the change, region by region too."""
    sides = (
        observed_passes(frame, "decode", name)
        for frame, name in (
            (replays([[ATTEND, UP]] * 4), "base"),
            (replays([[QUICK, UP, DOWN]] * 4), "other"),
        )
    )
    base, other = sides
    for pair in (
        (replace(base, why_no_gaps="clocks lie"), other),
        (base, replace(other, why_no_gaps="clocks lie")),
    ):
        found = observe(*pair).ledger
        (line,) = found.lines
        assert (line.cause, line.change.value) == (Cause.MIXED, -60.0)
        assert {
            region: {cause: each.value for cause, each in causes.items()}
            for region, causes in found.regions.items()
        } == {"attention": {Cause.MIXED: -360.0}, "mlp": {Cause.MIXED: 300.0}}
        assert found.change.value == -60.0
        (note,) = found.notes
        assert note.startswith("gaps against kernels are not separable: clocks lie in ")


def test_nothing_has_an_interval() -> None:
    """One observation says nothing of how much it varies."""
    found = between(replays([[ATTEND]] * 4), replays([[QUICK]] * 4)).ledger
    estimates = [found.change, found.residual, *(line.change for line in found.lines)]
    assert {(each.low, each.high) for each in estimates} == {(-math.inf, math.inf)}


def test_only_layers_between_two_others_count() -> None:
    """A slow first and a slow last layer change nothing."""
    slow = ATTEND._replace(duration_ns=9_000)
    found = between(
        replays([[ATTEND]] * 4), replays([[slow], [ATTEND], [ATTEND], [slow]])
    )
    assert found.ledger.change.value == 0.0
    assert found.compared == (2, 2)


def test_of_fewer_than_three_layers_all_count() -> None:
    """There is nothing else to compare."""
    found = between(replays([[ATTEND]] * 2), replays([[QUICK]]))
    assert found.compared == (2, 1)
    # the gap before the first kernel of a replay is not known
    assert lines(found.ledger) == {Cause.FASTER: -300.0, Cause.GAPS: -50.0}


def test_layers_face_those_of_their_number() -> None:
    """Two variants on both sides: each is compared with its own kind."""
    dense, sparse = [ATTEND, UP], [ATTEND, DOWN, DOWN]
    base = replays([dense, dense, sparse, dense, sparse, dense])
    quick = [
        [each._replace(duration_ns=each.duration_ns - 100) for each in layer]
        for layer in (dense, dense, sparse, dense, sparse, dense)
    ]
    found = between(base, replays(quick))
    assert lines(found.ledger) == {Cause.SAME: pytest.approx(-250.0)}
    assert found.compared == (4, 4)


def test_of_other_numbers_of_layers_the_usual_ones_are_compared() -> None:
    """With nothing to pair by, the most common list of kernels stands for an arm."""
    base = replays([[ATTEND, UP]] * 6)
    other = replays([[QUICK, UP], [QUICK, UP], [QUICK, UP], [DOWN], [QUICK, UP]])
    found = between(base, other)
    assert found.compared == (4, 2)
    assert lines(found.ledger) == {Cause.FASTER: -300.0, Cause.GAPS: -60.0}
    (note,) = found.ledger.notes
    assert note == (
        "1 of 3 passes of other have other kernels than most of their number, and are "
        "left out"
    )


def test_kernels_that_vary_are_no_ledger() -> None:
    """Where fewer than half of the layers can be compared, causes are unknown."""
    other = replays([[UP], [ATTEND], [UP], [DOWN], [ATTEND, DOWN], [QUICK], [UP]])
    found = between(replays([[ATTEND]] * 4), other).ledger
    assert found.unknown == (
        "the kernels of other vary: 1 of 5 passes could be compared"
    )
    assert found.lines == ()
    assert found.change.value == found.residual.value != 0.0


def test_an_arm_without_passes_is_no_ledger() -> None:
    """Its reason says so, and nothing is a number that is none."""
    found = between(replays([[ATTEND]] * 4), replays())
    assert found.ledger.unknown == "no pass of other was recorded"
    assert found.compared == (0, 0)


def test_hidden_time_is_told_and_no_line() -> None:
    """Kernels that overlap cannot be told from faster ones."""
    early = UP._replace(gap_ns=-400)
    found = between(replays([[ATTEND, UP]] * 4), replays([[ATTEND, early]] * 4)).ledger
    assert found.hidden == {"base": 0.0, "other": 400.0}
    assert lines(found) == {Cause.GAPS: -50.0, Cause.SAME: -400.0}
    (note,) = found.notes
    assert note == (
        "overlap against faster kernels is not separable: kernels run beside each "
        "other in other"
    )


def test_roles_of_both_sides_are_beside_each_other() -> None:
    """Kernels without a role are listed by name; what changed most comes first."""
    found = between(replays([[ATTEND, UP]] * 4), replays([[QUICK, DOWN]] * 4)).roles
    assert_frame_equal(
        found,
        pl.DataFrame(
            [
                ("mlp", "up", False, 1.0, 50.0, 500.0, None, None, None),
                ("attention", "attend", True, 1.0, 100.0, 1e3, 1.0, 40.0, 700.0),
                ("mlp", "down", False, None, None, None, 1.0, 0.0, 300.0),
            ],
            schema=found.schema,
            orient="row",
        ),
    )


def test_the_ledger_of_a_run_is_on_its_own_basis() -> None:
    """A measured run has intervals, one of a trace has none."""
    measured = ledger_between(handmade.run(), "reference", "fused")
    assert math.isfinite(measured.change.low)
    run = run_of([paper_trace.swept_trace()], "run")
    traced = ledger_between(run, "decode", "prefill")
    assert traced.change.value == 315_000.0
    assert not math.isfinite(traced.change.low)


KERNELS_OF_PASSES = st.lists(
    st.lists(
        st.builds(
            Kernel,
            region=st.sampled_from(["attention", "mlp"]),
            name=st.sampled_from(["a", "b", "c"]),
            role=st.sampled_from([None, "one", "two", "one+two"]),
            gap_ns=st.integers(-500, 500),
            duration_ns=st.integers(0, 1_000),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


@given(base=st.lists(KERNELS_OF_PASSES, min_size=1), other=KERNELS_OF_PASSES)
def test_lines_regions_and_roles_add_up_to_the_change(
    base: list[list[list[Kernel]]], other: list[list[Kernel]]
) -> None:
    """Every nanosecond is in one line, in one region, and in one role."""
    found = between(replays(*base), replays(other))
    ledger, roles = found.ledger, found.roles
    if ledger.unknown:
        return
    sums = roles.select(pl.all().exclude("region", "kernel", "is_role").sum())
    spent = {name: sums[name][0] for name in sums.columns}
    base_ns = spent["base_gap_ns"] + spent["base_exclusive_ns"]
    other_ns = spent["other_gap_ns"] + spent["other_exclusive_ns"]
    change = pytest.approx(ledger.change.value, abs=1e-6)
    assert sum(line.change.value for line in ledger.lines) == change
    assert change == sum(
        each.value for found in ledger.regions.values() for each in found.values()
    )
    assert other_ns - base_ns == change
    assert ledger.base_ns == pytest.approx(base_ns)


@given(base=KERNELS_OF_PASSES, other=KERNELS_OF_PASSES)
def test_changing_places_changes_signs(
    base: list[list[Kernel]], other: list[list[Kernel]]
) -> None:
    """From other to base, every line is what it was from base to other, negated."""
    there, back = (
        between(replays(base), replays(other)),
        between(replays(other), replays(base)),
    )
    assert [line.change.value for line in there.ledger.lines] == [
        pytest.approx(-line.change.value, abs=1e-6) for line in back.ledger.lines
    ]
