from hypothesis import given
from hypothesis import strategies as st

from layerscope.experiment import ALL, PASSES
from layerscope.graphs.replay import HEAD_PASS, Link, Node
from layerscope.graphs.serial import has_branches, order_is_kept, serialised
from tests.graphs.handmade_graphs import early, full, layer, node, row


def test_creation_order_is_kept_by_links_that_lead_forward() -> None:
    """One link back, or from a node to itself, breaks it."""
    assert order_is_kept(full((0, 1), (0, 2)) + early((1, 2)))
    assert not order_is_kept(full((0, 1), (2, 1)))
    assert not order_is_kept(full((1, 1)))


def test_a_graph_has_branches_where_two_neighbours_are_not_linked() -> None:
    """A chain has none, with whatever edges beside it; a fork, or a gap, is one."""
    nodes = [node(index) for index in range(4)]
    assert not has_branches(nodes, full(*row(4)))
    assert not has_branches(nodes, early(*row(4)) + full((0, 3)))
    assert has_branches(nodes, full((0, 1), (0, 2), (1, 3), (2, 3)))
    assert has_branches(nodes, full((0, 1), (2, 3)))
    assert not has_branches(nodes[:1], ())


def test_all_is_one_chain_of_full_links() -> None:
    """Branches, programmatic links and what the chain implies are gone."""
    nodes = [node(index) for index in range(4)]
    links = full((0, 1), (0, 2), (0, 3), (1, 3)) + early((2, 3))
    assert serialised(nodes, links, ALL) == set(full(*row(4)))


def test_passes_only_make_links_between_passes_full() -> None:
    """Within a pass kernels still overlap; the head counts as a pass."""
    links = early(*row(9))
    inner = [(1, 2), (2, 3), (3, 4), (5, 6), (6, 7), (7, 8)]
    assert serialised(layer(), links, PASSES) == set(
        full((0, 1), (4, 5)) + early(*inner)
    )


def test_every_start_of_a_pass_waits_for_every_end_of_the_one_before() -> None:
    """Also where branches run from pass to pass, and past one."""
    nodes = [node(index, index // 2) for index in range(6)]
    links = full((0, 2), (1, 5), (2, 3), (3, 4)) + early((4, 5), (3, 5))
    assert serialised(nodes, links, PASSES) == {
        *full((0, 2), (1, 2), (2, 3), (3, 4), (1, 5), (3, 5)),
        *early((4, 5)),
    }


def test_a_region_only_makes_links_into_its_nodes_full() -> None:
    """Those within it and into it, in every pass; those out of it stay."""
    links = early(*row(9))
    assert serialised(layer(), links, "moe") == {
        *full((2, 3), (3, 4), (6, 7), (7, 8)),
        *early((0, 1), (1, 2), (4, 5), (5, 6)),
    }


def test_branches_of_a_region_become_a_chain() -> None:
    """Links that the chain implies go, others stay, and so do other regions' branches.

    0 forks into 1, 2 and 3, which join in 4; 1 and 2 are of the region.
    """
    regions = ("attention", "moe", "moe", "attention", "attention")
    nodes = [node(index, region=name) for index, name in enumerate(regions)]
    fork = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]
    expected = full((0, 1), (1, 2), (0, 3), (1, 4), (2, 4), (3, 4))
    assert serialised(nodes, full(*fork), "moe") == set(expected)


def test_nodes_of_a_region_that_others_order_need_no_link() -> None:
    """A region that comes twice in a pass is a chain already."""
    regions = ("moe", "attention", "moe")
    nodes = [node(index, region=name) for index, name in enumerate(regions)]
    links = full((0, 1), (1, 2))
    assert serialised(nodes, links, "moe") == set(links)


def test_a_branch_keeps_what_no_other_link_implies() -> None:
    """2 waits for 0, which 1 does not: the link stays beside the new one."""
    regions = ("attention", "moe", "moe")
    nodes = [node(index, region=name) for index, name in enumerate(regions)]
    assert serialised(nodes, full((0, 2)), "moe") == set(full((0, 2), (1, 2)))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Link]]:
    """Any graph whose creation order is kept, its passes one after the other."""
    count = draw(st.integers(1, 8))
    names = st.sampled_from(["attention", "moe"])
    passes = sorted(
        draw(st.lists(st.integers(HEAD_PASS, 2), min_size=count, max_size=count))
    )
    nodes = [node(i, passes[i], draw(names)) for i in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    kinds = st.sampled_from([Link, Link.early])
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return nodes, [draw(kinds)(*pair) for pair in chosen]


def ordered(links: set[Link], *, only_full: bool = False) -> set[tuple[int, int]]:
    """All pairs of nodes with a path between them."""
    paths = {
        (link.source, link.target) for link in links if link.is_full or not only_full
    }
    while True:
        longer = {(a, d) for a, b in paths for c, d in paths if b == c} - paths
        if not longer:
            return paths
        paths |= longer


@given(graph=graphs(), scope=st.sampled_from([ALL, PASSES, "moe"]))
def test_serialising_takes_no_order_away_and_is_done_once(
    graph: tuple[list[Node], list[Link]], scope: str
) -> None:
    """What was ordered still is, what waited for an end does, twice changes nothing."""
    nodes, links = graph
    serial = serialised(nodes, links, scope)
    assert ordered(set(links)) <= ordered(serial)
    assert ordered(set(links), only_full=True) <= ordered(serial, only_full=True)
    assert serialised(nodes, serial, scope) == serial


@given(graph=graphs())
def test_nodes_of_a_serial_region_are_ordered(
    graph: tuple[list[Node], list[Link]],
) -> None:
    """Any two of them, and no programmatic link leads into one."""
    nodes, links = graph
    serial = serialised(nodes, links, "moe")
    members = [each.index for each in nodes if each.region == "moe"]
    pairs = {(a, b) for a in members for b in members if a < b}
    assert pairs <= ordered(serial)
    assert all(link.is_full for link in serial if link.target in members)
