from collections import Counter
from dataclasses import fields

import pytest

from layerscope.analyze.causes import Cause
from layerscope.selftest.cases import (
    CASES,
    Case,
    Chain,
    Demand,
    Launch,
    Start,
    overlaps,
)

BY_NAME = {case.name: case for case in CASES}


def differing(base: Chain, other: Chain) -> set[str]:
    """The fields in which launches differ, of as many in both arms."""
    return {
        field.name
        for pair in zip(base, other, strict=True)
        for field in fields(Launch)
        if getattr(pair[0], field.name) != getattr(pair[1], field.name)
    }


def roles(chain: Chain) -> Counter[tuple[str, str]]:
    """How many kernels each role of each region has."""
    return Counter((launch.region, launch.role) for launch in chain)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("trigger", "start"),
        ("early", "start"),
        ("branches", "beside"),
        ("less", "extra"),
        ("swap", "slow"),
        ("gap", "writes"),
        ("bandwidth", "start"),
    ],
)
def test_one_thing_differs(name: str, field: str) -> None:
    """The kernels of both arms are alike but for one field."""
    assert differing(BY_NAME[name].base, BY_NAME[name].other) == {field}


def test_nothing_differs_in_nothing() -> None:
    """Both arms are the same."""
    assert BY_NAME["nothing"].base == BY_NAME["nothing"].other


@pytest.mark.parametrize(("name", "fewer"), [("merge", 4), ("fewer", 20)])
def test_kernels_are_merged(name: str, fewer: int) -> None:
    """Fewer kernels of the same roles, which make more updates each."""
    base, other = BY_NAME[name].base, BY_NAME[name].other
    assert len(base) - len(other) == fewer
    assert roles(base).keys() == roles(other).keys()
    assert {launch.updates for launch in base} == {1}


def test_there_are_gaps_between_the_kernels_that_are_merged() -> None:
    """Where graphs launch kernels fast, there are none but for writes of the stream."""
    base, other = BY_NAME["fewer"].base, BY_NAME["fewer"].other
    assert [launch.writes for launch in base] == [0] * 3 + [32] * 24 + [0]
    assert [launch.writes for launch in other] == [0] * 3 + [32] * 4 + [0]


def test_every_case_is_listed_here() -> None:
    """The tests above are about all cases."""
    assert [*BY_NAME] == [
        *("trigger", "early", "branches", "merge", "less", "swap", "gap", "fewer"),
        *("bandwidth", "nothing"),
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_arms_make_the_same_updates(case: Case) -> None:
    """The same chunks for the same rows, in the same order."""
    base, other = (
        [(launch.region, *update) for launch in arm for update in launch.work]
        for arm in (case.base, case.other)
    )
    assert base == other


def test_every_cause_that_can_be_planted_is() -> None:
    """The rest is no cause of ours, what a matched role is not, or of traces alone."""
    planted = frozenset[Cause]().union(*(case.expected for case in CASES))
    assert set(Cause) - planted == {
        *(Cause.SAME, Cause.ADDED, Cause.REPLACED, Cause.MIXED),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_code_is_planted_where_it_counts(case: Case) -> None:
    """Kernels have another name where they are to count as faster or merged."""
    changes_code = case.expected & {Cause.FASTER, Cause.MERGED}
    names = [{launch.kernel for launch in arm} for arm in (case.base, case.other)]
    assert bool(changes_code) == (names[0] != names[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_roles_pair_kernels_that_are_not_merged(case: Case) -> None:
    """A role is of one kernel on either side, or of a different number on both."""
    base, other = roles(case.base), roles(case.other)
    assert all(
        base[role] == other[role] == 1 or base[role] > other[role] for role in base
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_overlap_is_planted_alone(case: Case) -> None:
    """Arms overlap in those cases only whose cause it is."""
    assert not overlaps(case.base) or case.expected == {Cause.OVERLAP}
    assert overlaps(case.other) == (case.expected == {Cause.OVERLAP})


def test_the_base_of_a_case_pays_for_nothing_besides() -> None:
    """Its kernels are plain, but where another way to be programmatic is planted."""
    programmatic = {
        case.name
        for case in CASES
        if any(launch.start is not Start.PLAIN for launch in case.base)
    }
    assert programmatic == {"trigger", "early"}


def test_only_balanced_arms_spin() -> None:
    """For a time that is set when it is known."""
    spinning = {
        case.name
        for case in CASES
        if any(one.spin_ns for one in (*case.base, *case.other))
    }
    assert spinning == {case.name for case in CASES if case.demand is Demand.BALANCE}
