from collections import Counter
from typing import TypeAlias

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.causes import Cause
from layerscope.analyze.matching import Matching, joined_things, match
from layerscope.analyze.typical import typical_pass
from tests.analyze.timelines import Kernel, one_pass

ADDED, FASTER, MERGED = Cause.ADDED, Cause.FASTER, Cause.MERGED
REPLACED, SAME = Cause.REPLACED, Cause.SAME
GAPS, LAUNCHES = Cause.GAPS, Cause.LAUNCHES

Causes: TypeAlias = list[tuple[Cause, Cause]]
"""Of every kernel of the only region: what its duration counts for, and its gap."""

CHAINS = st.lists(
    st.tuples(
        st.sampled_from(["attention", "moe"]),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([None, None, "a", "b", "c", "a+b", "b+c"]),
        st.sampled_from([1, 2]),
    ).map(lambda drawn: Kernel(*drawn[:2], 100, role=drawn[2], blocks=drawn[3])),
    min_size=1,
    max_size=10,
)


def kernel(name: str, role: str | None = None, blocks: int = 8) -> Kernel:
    """A kernel of the region moe."""
    return Kernel("moe", name, 1_000, role=role, blocks=blocks)


def matched(base: list[Kernel], other: list[Kernel]) -> Matching:
    """The matching of two passes."""
    one, two = (typical_pass(one_pass(chain)) for chain in (base, other))
    return match(one, two)


def causes(base: list[Kernel], other: list[Kernel]) -> tuple[Causes, Causes]:
    """Those of base and other, each of one region."""
    found = matched(base, other)
    columns = "cause", "gap_cause"
    return found.base.select(columns).rows(), found.other.select(columns).rows()


def test_labels_are_by_region_and_place() -> None:
    """Every kernel of either arm has one row, found by its region and ordinal."""
    base = [kernel("x", "up"), Kernel("attention", "x", 1_000)]
    found = matched(base, [Kernel("attention", "x", 1_000), kernel("y", "up")])
    expected = pl.DataFrame(
        {
            "region": ["attention", "moe"],
            "ordinal": [0, 0],
            "cause": ["same code", "faster kernels"],
            "gap_cause": ["shorter gaps", "shorter gaps"],
        }
    )
    assert_frame_equal(found.base, expected)
    assert_frame_equal(found.other, expected)


def test_one_role_and_other_code_is_faster() -> None:
    """A kernel that was swapped for another one of its role is a pair with it."""
    pair = [(FASTER, GAPS)]
    assert causes([kernel("x", "up")], [kernel("y", "up")]) == (pair, pair)


def test_equal_code_is_the_same() -> None:
    """Equal name, grid and block is the same code; another grid is not."""
    same, other = [(SAME, GAPS)], [(FASTER, GAPS)]
    assert causes([kernel("x", "up")], [kernel("x", "up")]) == (same, same)
    wider = [kernel("x", "up", blocks=16)]
    assert causes([kernel("x", "up")], wider) == (other, other)


def test_kernels_of_one_role_are_pairs_in_order() -> None:
    """With equally many kernels, each pair is judged by itself."""
    base = [kernel("x", "up"), kernel("y", "up")]
    other = [kernel("x", "up"), kernel("z", "up")]
    both = [(SAME, GAPS), (FASTER, GAPS)]
    assert causes(base, other) == (both, both)


def test_joined_roles_are_merged() -> None:
    """A kernel that does two things stands for both kernels that did them."""
    base = [kernel("x", "up"), kernel("y", "act"), kernel("w", "down")]
    other = [kernel("xy", "up+act"), kernel("v", "down")]
    assert causes(base, other) == (
        [(MERGED, GAPS), (MERGED, LAUNCHES), (FASTER, GAPS)],
        [(MERGED, GAPS), (FASTER, GAPS)],
    )


def test_roles_are_joined_through_both_arms() -> None:
    """What any kernel joins belongs together: here a with b, and b with c."""
    base = [kernel("p", "a"), kernel("q", "b+c")]
    other = [kernel("r", "a+b"), kernel("s", "c"), kernel("t", "c")]
    assert causes(base, other) == (
        [(MERGED, GAPS), (MERGED, GAPS)],
        [(MERGED, GAPS), (MERGED, GAPS), (MERGED, LAUNCHES)],
    )


def test_more_kernels_of_a_role_are_split_whatever_their_code() -> None:
    """Which of two kernels took over the work of one is not known, even if equal."""
    found = causes([kernel("x", "up")], [kernel("x", "up"), kernel("z", "up")])
    assert found == ([(MERGED, GAPS)], [(MERGED, GAPS), (MERGED, LAUNCHES)])


def test_a_role_of_one_arm_is_added_or_removed() -> None:
    """Roles that only one side has face nothing, even on both sides at once."""
    base = [kernel("x", "up"), kernel("n", "norm")]
    other = [kernel("x", "up"), kernel("n", "quantise"), kernel("m", "quantise")]
    added = (ADDED, LAUNCHES)
    expected = [(SAME, GAPS), added], [(SAME, GAPS), added, added]
    assert causes(base, other) == expected


def test_without_roles_equal_code_is_paired_in_order() -> None:
    """Each code as often as both have it; what is left on both sides is replaced."""
    base = [kernel("x"), kernel("fill"), kernel("x"), kernel("y"), kernel("w")]
    other = [kernel("z"), kernel("x"), kernel("fill"), kernel("fill", blocks=9)]
    assert causes(base, other) == (
        [
            (SAME, GAPS),
            (SAME, GAPS),
            (REPLACED, GAPS),
            (REPLACED, GAPS),
            (REPLACED, LAUNCHES),
        ],
        [(REPLACED, GAPS), (SAME, GAPS), (SAME, GAPS), (REPLACED, GAPS)],
    )


def test_a_rest_on_one_side_is_added_or_removed() -> None:
    """Where the other arm has nothing left, a kernel without a role is added."""
    found = causes([kernel("x"), kernel("y")], [kernel("y")])
    assert found == ([(ADDED, LAUNCHES), (SAME, GAPS)], [(SAME, GAPS)])


def test_a_region_of_one_arm_is_added_or_removed() -> None:
    """Nothing is matched across regions, be the code equal or the role."""
    base = [Kernel("attention", "x", 1_000), Kernel("attention", "y", 1_000, role="a")]
    found = causes(base, [kernel("x"), kernel("y", "a")])
    added = [(ADDED, LAUNCHES), (ADDED, LAUNCHES)]
    assert found == (added, added)


def test_equal_code_counts_where_one_arm_names_no_roles() -> None:
    """A kernel with a role is the same as one of equal code without."""
    same = [(SAME, GAPS)]
    assert causes([kernel("x", "up")], [kernel("x")]) == (same, same)
    assert causes([kernel("x")], [kernel("x", "up")]) == (same, same)


def test_roles_facing_none_are_replaced() -> None:
    """Against a rest without roles, what has a role may be its counterpart."""
    base = [kernel("x", "up"), kernel("y", "down")]
    found = causes(base, [kernel("z")])
    expected = [(REPLACED, GAPS), (REPLACED, LAUNCHES)], [(REPLACED, GAPS)]
    assert found == expected
    assert causes([kernel("z")], base) == expected[::-1]


def test_roles_facing_nothing_left_are_removed() -> None:
    """A rest whose counterparts are all found faces nothing."""
    found = causes([kernel("x", "up"), kernel("y")], [kernel("y")])
    assert found == ([(ADDED, LAUNCHES), (SAME, GAPS)], [(SAME, GAPS)])


def test_equal_code_of_other_roles_is_not_the_same() -> None:
    """Where both arms say that kernels do different things, equal code is no match."""
    added = [(ADDED, LAUNCHES)]
    assert causes([kernel("x", "up")], [kernel("x", "down")]) == (added, added)


@given(CHAINS, CHAINS)
def test_arms_may_change_places(base: list[Kernel], other: list[Kernel]) -> None:
    """Labels do not depend on which arm is the base."""
    one, two = matched(base, other), matched(other, base)
    assert_frame_equal(one.base, two.other)
    assert_frame_equal(one.other, two.base)


@given(CHAINS, CHAINS)
def test_every_kernel_has_one_label(base: list[Kernel], other: list[Kernel]) -> None:
    """No kernel is forgotten, none counts twice."""
    found = matched(base, other)
    for chain, labels in ((base, found.base), (other, found.other)):
        expected = [
            (region, ordinal)
            for region, count in sorted(Counter(k.region for k in chain).items())
            for ordinal in range(count)
        ]
        assert labels.select("region", "ordinal").rows() == expected


@given(CHAINS, CHAINS)
def test_pairs_have_two_sides(base: list[Kernel], other: list[Kernel]) -> None:
    """In each region, both arms have equally many of what is matched one to one."""
    found = matched(base, other)
    counts = []
    for labels in (found.base, found.other):
        pairs = labels.filter(pl.col("cause").is_in([SAME.value, FASTER.value]))
        gaps = labels.filter(pl.col("gap_cause") == GAPS.value)
        counts.append(
            (
                Counter(pairs.select("region", "cause").rows()),
                Counter(gaps["region"].to_list()),
            )
        )
    assert counts[0] == counts[1]


@given(CHAINS)
def test_an_arm_is_the_same_as_itself(chain: list[Kernel]) -> None:
    """All kernels are of the same code, and every gap has its counterpart."""
    found = matched(chain, chain)
    for labels in (found.base, found.other):
        assert set(labels["cause"]) == {SAME.value}
        assert set(labels["gap_cause"]) == {GAPS.value}


def test_things_that_any_role_joins_are_one_group() -> None:
    """Also through a third; a role that names nothing is in none."""
    roles = ["a", "b+c", "d", "", "c+a"]
    named = [frozenset(role.split("+")) - {""} for role in roles]
    assert joined_things(named) == [frozenset("d"), frozenset("abc")]
