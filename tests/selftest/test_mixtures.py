from itertools import pairwise

from layerscope.selftest.cases import Start
from layerscope.selftest.mixtures import CAUSES_ADDED, MIXED, MIXTURES, arm_before


def test_all_arms_make_the_same_updates() -> None:
    """So that they can be compared."""
    works = [
        [(launch.region, *update) for launch in arm for update in launch.work]
        for arm in MIXED.values()
    ]
    assert all(work == works[0] for work in works)


def test_every_arm_adds_one_thing() -> None:
    """Work, then fusion, then overlap, which leave alone what the others change."""
    extras = [sum(launch.extra for launch in arm) for arm in MIXED.values()]
    counts = [len(arm) for arm in MIXED.values()]
    branches = [sum(launch.beside for launch in arm) for arm in MIXED.values()]
    assert [*MIXED] == ["base", "work", "fusion", "overlap"]
    assert extras == [3, 0, 0, 0]
    assert counts == [8, 8, 6, 6]
    assert branches == [0, 0, 0, 1]


def test_no_arm_has_programmatic_kernels() -> None:
    """Their twins have other gaps than plain chains, which nobody planted."""
    launches = [launch for arm in MIXED.values() for launch in arm]
    assert {launch.start for launch in launches} == {Start.PLAIN}


def test_work_is_planted_outside_what_is_merged() -> None:
    """Else it would count as merged."""
    merged = {(one.region, one.role) for one in MIXED["fusion"] if one.updates > 1}
    worked = {(one.region, one.role) for one in MIXED["base"] if one.extra}
    assert worked
    assert merged.isdisjoint(worked)


def test_mixtures_are_of_neighbours() -> None:
    """What is added in a mixture was added in a row; each has an arm before it."""
    order = [*MIXED]
    assert [*CAUSES_ADDED] == order[1:]
    for mixture in MIXTURES:
        assert all(arm_before(after) == before for before, after in pairwise(mixture))
    assert arm_before("work") == "base"
