"""Making a change in a captured graph, and undoing it, through any runtime.

The captured graph itself is edited, so that its nodes stay the ones that recorders know
by their handles and numbers. As soon as the edited graph is instantiated, the captured
one is made what it was.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from layerscope.errors import MeasurementError
from layerscope.graphs.edits import Change, delayed
from layerscope.graphs.replay import Link

Executable: TypeAlias = Any
"""What a runtime calls an instantiated graph."""


class GraphDriver(Protocol):
    """One captured graph and its runtime; nodes are named by creation order.

    Every function raises `MeasurementError` in one line where the runtime refuses.
    """

    @property
    def count(self) -> int:
        """Nodes that were captured."""

    def links(self) -> tuple[Link, ...]:
        """The links that the graph has now, also those of delays."""

    def remove(self, links: Sequence[Link]) -> None:
        """Remove links that are there."""

    def add(self, links: Sequence[Link]) -> None:
        """Add links that are not there."""

    def add_delay(self, delay_ns: int) -> None:
        """Add a kernel that triggers, spins so long, and waits for what is before it.

        Its number is `count` plus that of delays before it; no link leads to it yet.
        """

    def destroy_delays(self) -> None:
        """Take all delays out of the graph, with their links."""

    def instantiate(self) -> Executable:
        """An executable graph of what the graph is now."""

    def upload(self, executable: Executable) -> None:
        """Bring the executable graph to the device."""

    def disable(self, executable: Executable, node: int) -> None:
        """Let a node do nothing in the executable graph."""

    def is_enabled(self, executable: Executable, node: int) -> bool:
        """Whether a node does its work in the executable graph."""

    def destroy(self, executable: Executable) -> None:
        """Free the executable graph."""


def instantiate_changed(
    driver: GraphDriver, links: Sequence[Link], change: Change
) -> Executable:
    """Instantiate and upload the graph with `change` made; undo it in the graph.

    Args:
        driver: of the captured graph.
        links: that it was captured with.
        change: what to make of it.

    Raises:
        MeasurementError: the graph is not as it was captured, the runtime refuses the
            change, or reading back shows another one. The captured graph is as it was,
            unless the line says that it is not.
    """
    verify(links, driver.links())
    executable: Executable = None
    try:
        _change(driver, links, change)
        executable = driver.instantiate()
        _disable(driver, executable, change.disabled)
        driver.upload(executable)
        _restore(driver, links)
    except BaseException:
        try:
            _restore(driver, links)
        finally:
            if executable is not None:
                driver.destroy(executable)
        raise
    return executable


def _change(driver: GraphDriver, links: Sequence[Link], change: Change) -> None:
    for _, delay_ns in change.delays:
        driver.add_delay(delay_ns)
    wanted = delayed(driver.count, change.applied(links), change.delays)
    _rewire(driver, wanted)


def _rewire(driver: GraphDriver, wanted: Iterable[Link]) -> None:
    there, wanted = set(driver.links()), set(wanted)
    driver.remove(sorted(there - wanted))
    driver.add(sorted(wanted - there))
    verify(wanted, driver.links())


def _disable(driver: GraphDriver, executable: Executable, nodes: Sequence[int]) -> None:
    for node in nodes:
        driver.disable(executable, node)
    on = [node for node in nodes if driver.is_enabled(executable, node)]
    if on:
        msg = f"{len(on)} of {len(nodes)} nodes were disabled and still are not"
        raise MeasurementError(msg)


def _restore(driver: GraphDriver, links: Sequence[Link]) -> None:
    """Make the graph what it was captured as, from whatever it is now."""
    try:
        driver.destroy_delays()
        _rewire(driver, links)
    except MeasurementError as error:
        msg = f"the captured graph could not be made what it was: {error}"
        raise MeasurementError(msg) from error


def verify(expected: Iterable[Link], found: Iterable[Link]) -> None:
    """Check that a graph has exactly the links it should have.

    Raises:
        MeasurementError: it has others; says how many, and names the first.
    """
    wanted, there = set(expected), set(found)
    wrong = sorted(wanted ^ there)
    if wrong:
        missing, extra = len(wanted - there), len(there - wanted)
        first = min(there - wanted, default=wrong[0])
        msg = (
            f"the graph lacks {missing} edges that it should have and has {extra} that "
            f"it should not, such as {first.source} to {first.target} ({_data(first)})"
        )
        raise MeasurementError(msg)


def _data(link: Link) -> str:
    """The data of an edge, in words."""
    kind = "programmatic" if link.programmatic else "full"
    ports = f"ports {link.from_port} and {link.to_port}"
    return f"{kind}, {ports}" if link.from_port or link.to_port else kind
