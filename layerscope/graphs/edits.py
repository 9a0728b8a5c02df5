"""What an experiment changes in a captured graph, worked out on its nodes and links.

Nothing here touches a device. A graph that an experiment must not be made on is
answered with every reason at once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from layerscope.experiment import ALL, PASSES, Experiment
from layerscope.graphs.replay import HEAD_PASS, Link, Node
from layerscope.graphs.serial import has_branches, order_is_kept, serialised

LONGEST_DELAY_NS: Final = 1_000_000
"""What a kernel may spin for on a GPU that others use."""

_EDITABLE: Final = frozenset(
    {
        *("kernel", "copy", "fill", "empty"),
        *("event record", "event wait", "memory operation"),
    }
)
_MAY_WAIT: Final = "memory operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What the kernels of a graph stand, as their backends declare it."""

    waits: tuple[str, ...] = ()
    """Roles of kernels that wait for a kernel beside them, or for another rank."""

    skippable: tuple[str, ...] = ()
    """Regions whose kernels may be disabled."""

    pdl_safe: tuple[str, ...] = ()
    """Roles of kernels before which a full edge may become a programmatic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The edits of one graph; nodes are named by creation order."""

    remove: tuple[Link, ...] = ()
    add: tuple[Link, ...] = ()

    disabled: tuple[int, ...] = ()
    """Nodes that do nothing in the edited graph."""

    delays: tuple[tuple[int, int], ...] = ()
    """(node before which a kernel spins, for how many nanoseconds)."""

    @property
    def is_empty(self) -> bool:
        """Whether the graph already is what it is to be."""
        return self == Change()

    @property
    def edges_changed(self) -> int:
        """Pairs of nodes between which an edge comes, goes, or becomes another."""
        return len({(link.source, link.target) for link in self.remove + self.add})

    def applied(self, links: Iterable[Link]) -> tuple[Link, ...]:
        """The links of the edited graph without its delays, sorted."""
        return tuple(sorted(set(links) - set(self.remove) | set(self.add)))


def plan(
    experiment: Experiment,
    nodes: Sequence[Node],
    links: Iterable[Link],
    allowed: Allowed,
) -> Change | list[str]:
    """What `experiment` changes in a graph, or every reason not to make it.

    Args:
        experiment: what is asked.
        nodes: of the captured graph, in creation order.
        links: between them.
        allowed: what its kernels stand.

    Returns:
        An empty change where the graph already is what the experiment makes of it.
    """
    links = tuple(links)
    reasons = refusals(nodes, links, allowed.waits)
    parts: list[Change | list[str]] = []
    if experiment.serial and experiment.programmatic:
        reasons.append("its edges cannot become full and programmatic at once")
    if experiment.serial:
        parts.append(serialise(nodes, links, experiment.serial))
    if experiment.programmatic:
        parts.append(make_programmatic(nodes, links, allowed.pdl_safe))
    if experiment.without:
        parts.append(knock_out(nodes, experiment.without, allowed.skippable))
    if experiment.delay:
        parts.append(delay(nodes, experiment.delay, experiment.delay_ns))
    changes = [part for part in parts if isinstance(part, Change)]
    reasons += chain.from_iterable(part for part in parts if isinstance(part, list))
    return reasons or Change(
        remove=tuple(chain.from_iterable(change.remove for change in changes)),
        add=tuple(chain.from_iterable(change.add for change in changes)),
        disabled=tuple(chain.from_iterable(change.disabled for change in changes)),
        delays=tuple(chain.from_iterable(change.delays for change in changes)),
    )


def refusals(
    nodes: Sequence[Node], links: Iterable[Link], waits: Iterable[str]
) -> list[str]:
    """Every reason why a graph cannot be edited, whatever the experiment.

    A single chain keeps its order when it is edited, so a kernel that waits for an
    earlier one finds it done. Of two branches, either may come first.

    Args:
        nodes: of the graph, in creation order.
        links: between them.
        waits: roles of kernels that wait for a kernel beside them.
    """
    links = tuple(links)
    reasons = []
    kinds = Counter(node.kind for node in nodes if node.kind not in _EDITABLE)
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        reasons.append(f"it has nodes that cannot be edited: {counts}")
    if not order_is_kept(links):
        reasons.append(
            "some of its nodes were created before nodes they depend on, so they "
            "cannot be put in a row"
        )
    waiting = sorted({node.role for node in nodes if node.role} & set(waits))
    if any(node.kind == _MAY_WAIT for node in nodes):
        waiting.append("operations on memory")
    if waiting and has_branches(nodes, links):
        reasons.append(
            f"it has parallel branches and nodes that may wait for others "
            f"({', '.join(waiting)}), which might then wait for ever"
        )
    return reasons


def serialise(
    nodes: Sequence[Node], links: Iterable[Link], scope: str
) -> Change | list[str]:
    """Let nothing overlap within `scope`.

    Args:
        nodes: of the captured graph, in creation order.
        links: between them.
        scope: `experiment.ALL`: the nodes become one chain of full edges.
            `experiment.PASSES`: a pass starts after the end of the one before it. A
            region: edges within it and into it become full, its branches a chain.

    Returns:
        A reason, where no node belongs to the region.
    """
    if scope not in (ALL, PASSES) and not any(
        node.region == scope and node.pass_index != HEAD_PASS for node in nodes
    ):
        return [f"no node of its passes belongs to {scope}"]
    captured, wanted = set(links), serialised(nodes, links, scope)
    return Change(
        remove=tuple(sorted(captured - wanted)), add=tuple(sorted(wanted - captured))
    )


def make_programmatic(
    nodes: Sequence[Node], links: Iterable[Link], safe: Iterable[str]
) -> Change | list[str]:
    """Let kernels start early that are declared safe: their roles are in `safe`.

    Full edges from kernels into them become programmatic ones.

    Returns:
        A reason, where there is no such kernel.
    """
    kernels = {node.index: node for node in nodes if node.kind == "kernel"}
    roles = set(safe)
    early = {index for index, kernel in kernels.items() if kernel.role in roles}
    if not early:
        return ["it has no kernel that is declared safe to start early"]
    full = [
        link
        for link in sorted(links)
        if link.is_full and link.target in early and link.source in kernels
    ]
    return Change(
        remove=tuple(full),
        add=tuple(Link.early(link.source, link.target) for link in full),
    )


def knock_out(
    nodes: Sequence[Node], region: str, skippable: Iterable[str]
) -> Change | list[str]:
    """Disable the kernels of `region` in every pass; the head of a replay always runs.

    Copies and fills stay. CUDA lets them be disabled too, but replays of graphs with
    disabled fills now and then fail ("unspecified launch failure": H200, driver 580).

    Returns:
        Reasons, where the region may not be skipped, or has no kernel.
    """
    reasons = []
    if region not in skippable:
        reasons.append(f"its backend does not declare {region} skippable")
    kernels = [node.index for node in _kernels(nodes, region)]
    if not kernels:
        reasons.append(_no_kernel(region))
    return reasons or Change(disabled=tuple(kernels))


def delay(nodes: Sequence[Node], scope: str, delay_ns: int) -> Change | list[str]:
    """Let a kernel spin before the first kernel of `scope` in every pass.

    Args:
        nodes: of the captured graph, in creation order.
        scope: as `Experiment.delay`.
        delay_ns: how long.

    Returns:
        Reasons, where the time is none that is allowed, or `scope` has no kernel.
    """
    reasons = []
    if not 0 <= delay_ns <= LONGEST_DELAY_NS:
        reasons.append(f"a delay has 0 to {LONGEST_DELAY_NS} ns, not {delay_ns}")
    first: dict[int, int] = {}
    region, _, role = scope.partition("/")
    for node in _kernels(nodes, region):
        if not role or {*role.split("+")} <= {*(node.role or "").split("+")}:
            first.setdefault(node.pass_index, node.index)
    if not first:
        reasons.append(_no_kernel(scope))
    return reasons or Change(
        delays=tuple((index, delay_ns) for index in first.values())
    )


def _kernels(nodes: Sequence[Node], region: str) -> list[Node]:
    """The kernels of `region`, in all passes; of every region where it is empty."""
    return [
        node
        for node in nodes
        if region in ("", node.region)
        and node.pass_index != HEAD_PASS
        and node.kind == "kernel"
    ]


def _no_kernel(scope: str) -> str:
    region, _, role = scope.partition("/")
    if not role:
        return f"no kernel of its passes belongs to {region}"
    of = f" of {region}" if region else ""
    return f"no kernel{of} of its passes has the role {role}"


def delayed(
    count: int, links: Iterable[Link], delays: Sequence[tuple[int, int]]
) -> tuple[Link, ...]:
    """The links of a graph with a node before each of `delays`, sorted.

    What led to the delayed node leads to the new one, and from there to it: by a
    programmatic edge, if any of the old ones was.

    Args:
        count: nodes of the graph before; the new ones follow, in the order of `delays`.
        links: between the nodes before.
        delays: as in `Change`.
    """
    wanted = set(links)
    for number, (target, _) in enumerate(delays, start=count):
        before = {link for link in wanted if link.target == target}
        wanted -= before
        wanted |= {replace(link, target=number) for link in before}
        is_early = any(not link.is_full for link in before)
        wanted.add((Link.early if is_early else Link)(number, target))
    return tuple(sorted(wanted))
