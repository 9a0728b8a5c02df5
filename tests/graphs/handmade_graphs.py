"""Nodes and links by hand, and a graph in memory that is edited like a captured one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import HEAD_PASS, Link, Node


def full(*pairs: tuple[int, int]) -> tuple[Link, ...]:
    """Full links between pairs of nodes."""
    return tuple(Link(source, target) for source, target in pairs)


def early(*pairs: tuple[int, int]) -> tuple[Link, ...]:
    """Programmatic links between pairs of nodes."""
    return tuple(Link.early(source, target) for source, target in pairs)


def row(count: int) -> list[tuple[int, int]]:
    """The pairs of a chain of `count` nodes."""
    return [(index, index + 1) for index in range(count - 1)]


def node(
    index: int,
    pass_index: int = 0,
    region: str = "moe",
    *,
    kind: str = "kernel",
    role: str | None = None,
) -> Node:
    """A node whose handle is 100 more than its number."""
    return Node(index, 100 + index, kind, pass_index, region, role)


def layer(passes: int = 2) -> list[Node]:
    """A head, and in every pass two nodes of attention and two of moe."""
    nodes = [node(0, HEAD_PASS, "other")]
    for index in range(passes):
        for region in ("attention", "attention", "moe", "moe"):
            nodes.append(node(len(nodes), index, region))
    return nodes


@dataclass
class FakeGraph:
    """A `GraphDriver` in memory, which fails where it is told to."""

    count: int
    there: set[Link]
    failing: dict[str, int] = field(default_factory=dict)
    """By function: the call, from 1, that fails."""

    keeps_enabled: frozenset[int] = frozenset()
    """Nodes that cannot be disabled, without the runtime saying so."""

    delays: list[int] = field(default_factory=list)
    made: list["FakeExecutable"] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.calls.count(name) == self.failing.get(name):
            msg = f"{name} fails"
            raise MeasurementError(msg)

    def links(self) -> tuple[Link, ...]:
        """What is there, sorted."""
        self._called("links")
        return tuple(sorted(self.there))

    def remove(self, links: Sequence[Link]) -> None:
        """One call a link, so that any of them can fail."""
        for link in links:
            self._called("remove")
            self.there.remove(link)

    def add(self, links: Sequence[Link]) -> None:
        """One call a link; refuses what a runtime would."""
        for link in links:
            self._called("add")
            assert link not in self.there
            assert max(link.source, link.target) < self.count + len(self.delays)
            self.there.add(link)

    def add_delay(self, delay_ns: int) -> None:
        """Note the delay."""
        self._called("add_delay")
        self.delays.append(delay_ns)

    def destroy_delays(self) -> None:
        """Forget the delays and their links."""
        self._called("destroy_delays")
        self.delays.clear()
        self.there = {
            link for link in self.there if max(link.source, link.target) < self.count
        }

    def instantiate(self) -> "FakeExecutable":
        """Keep what the graph is now."""
        self._called("instantiate")
        executable = FakeExecutable(tuple(sorted(self.there)), tuple(self.delays))
        self.made.append(executable)
        return executable

    def upload(self, executable: "FakeExecutable") -> None:
        """Note it."""
        self._called("upload")
        executable.state = "uploaded"

    def disable(self, executable: "FakeExecutable", node: int) -> None:
        """Note the node, unless it cannot be disabled."""
        self._called("disable")
        executable.disabled |= {node} - self.keeps_enabled

    def is_enabled(self, executable: "FakeExecutable", node: int) -> bool:
        """Whether it was not disabled."""
        self._called("is_enabled")
        return node not in executable.disabled

    def destroy(self, executable: "FakeExecutable") -> None:
        """Note it."""
        self._called("destroy")
        executable.state = "destroyed"


@dataclass
class FakeExecutable:
    """What the graph was when it was instantiated."""

    links: tuple[Link, ...]
    delays: tuple[int, ...]
    disabled: set[int] = field(default_factory=set)
    state: str = "made"
