"""Where the nodes of a captured graph may overlap, and the links that stop them.

Creation order is taken to be one that the links allow: every link leads from an earlier
node to a later one. `order_is_kept` says whether it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from layerscope.experiment import ALL, PASSES
from layerscope.graphs.replay import Link, Node


def order_is_kept(links: Iterable[Link]) -> bool:
    """Whether creation order is one in which the nodes could run one by one."""
    return all(link.source < link.target for link in links)


def has_branches(nodes: Sequence[Node], links: Iterable[Link]) -> bool:
    """Whether any two nodes are ordered by no path of links.

    In an order that is kept, a path between neighbours is a link.
    """
    linked = {(link.source, link.target) for link in links}
    return any((a.index, b.index) not in linked for a, b in pairwise(nodes))


def serialised(nodes: Sequence[Node], links: Iterable[Link], scope: str) -> set[Link]:
    """The links of the graph in which nothing overlaps within `scope`.

    Args:
        nodes: of the graph, in creation order.
        links: as captured.
        scope: `experiment.ALL`, `experiment.PASSES`, or a region.
    """
    if scope == ALL:
        return {Link(before.index, after.index) for before, after in pairwise(nodes)}
    if scope == PASSES:
        return _passes_in_a_row(nodes, set(links))
    return _region_in_a_row(nodes, set(links), scope)


def _passes_in_a_row(nodes: Sequence[Node], links: set[Link]) -> set[Link]:
    """Every pass starts once the one before it, or the head, has ended.

    So that it has, each node of a pass must wait for those before it, as programmatic
    kernels do; the ends of a pass are the nodes that none of it follows.
    """
    passes = [
        [node.index for node in group]
        for _, group in groupby(nodes, key=lambda node: node.pass_index)
    ]
    place = {index: number for number, row in enumerate(passes) for index in row}
    crossing = {link for link in links if place[link.source] != place[link.target]}
    inner = links - crossing
    followed = {link.source for link in inner}
    following = {link.target for link in inner}
    between = {
        Link(end, start)
        for before, after in pairwise(passes)
        for end in before
        if end not in followed
        for start in after
        if start not in following
    }
    return inner | between | {link.full for link in crossing}


def _region_in_a_row(nodes: Sequence[Node], links: set[Link], region: str) -> set[Link]:
    """Full edges into every node of `region`, and its branches one after the other."""
    members = [node.index for node in nodes if node.region == region]
    inside = set(members)
    wanted = {link.full if link.target in inside else link for link in links}
    for before, after in pairwise(members):
        if not _is_path(wanted, before, after):
            wanted.add(Link(before, after))
            # What had to end before the branch forked has ended before its neighbour.
            wanted -= {
                link
                for link in wanted
                if link.is_full
                and link.target == after
                and link.source != before
                and _is_path(
                    (other for other in wanted if other.is_full), link.source, before
                )
            }
    return wanted


def _is_path(links: Iterable[Link], source: int, target: int) -> bool:
    """Whether links lead from `source` to `target`, over nodes between the two."""
    following: dict[int, list[int]] = defaultdict(list)
    for link in links:
        following[link.source].append(link.target)
    reached, waiting = {source}, [source]
    while waiting:
        for node in following[waiting.pop()]:
            if node <= target and node not in reached:
                reached.add(node)
                waiting.append(node)
    return target in reached
