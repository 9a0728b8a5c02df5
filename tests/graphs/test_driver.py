from collections.abc import Sequence

import pytest

from layerscope.errors import MeasurementError
from layerscope.graphs.driver import instantiate_changed, verify
from layerscope.graphs.edits import Change
from layerscope.graphs.replay import Link
from tests.graphs.handmade_graphs import FakeExecutable, FakeGraph, early, full, row

CAPTURED = early(*row(4))
SERIAL = Change(remove=CAPTURED, add=full(*row(4)))
EVERYTHING = Change(
    remove=early((0, 1)), add=full((0, 1)), disabled=(1, 2), delays=((3, 2000),)
)


def graph(**failing: int) -> FakeGraph:
    """A programmatic chain of four nodes, whose given calls fail."""
    return FakeGraph(4, set(CAPTURED), failing)


def assert_as_captured(driver: FakeGraph) -> None:
    """Its links are those of the capture, and no delay is left."""
    assert tuple(sorted(driver.there)) == CAPTURED
    assert driver.delays == []


def test_the_executable_graph_has_the_change_and_the_captured_one_has_not() -> None:
    """Links, disabled nodes and delays are in the one; the other is as it was."""
    driver = graph()
    made = instantiate_changed(driver, CAPTURED, EVERYTHING)
    assert made.links == (
        Link(0, 1),
        Link.early(1, 2),
        Link.early(2, 4),
        Link.early(4, 3),
    )
    assert made.delays == (2000,)
    assert made.disabled == {1, 2}
    assert made.state == "uploaded"
    assert_as_captured(driver)


def test_one_graph_is_changed_again_and_again() -> None:
    """A change leaves nothing behind for the next."""
    driver = graph()
    serial = instantiate_changed(driver, CAPTURED, SERIAL)
    everything = instantiate_changed(driver, CAPTURED, EVERYTHING)
    again = instantiate_changed(driver, CAPTURED, SERIAL)
    assert serial == again
    assert serial.links == full(*row(4))
    assert everything.disabled == {1, 2}
    assert instantiate_changed(driver, CAPTURED, Change()).links == CAPTURED


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("add_delay", 1),
        ("remove", 1),
        ("remove", 2),
        ("add", 1),
        ("add", 3),
        ("links", 2),
        ("links", 3),
        ("instantiate", 1),
        ("disable", 2),
        ("is_enabled", 1),
        ("upload", 1),
    ],
)
def test_a_change_that_fails_half_way_is_undone(name: str, call: int) -> None:
    """The runtime's line is raised, and no executable graph is left."""
    driver = graph(**{name: call})
    with pytest.raises(MeasurementError, match=f"^{name} fails$"):
        instantiate_changed(driver, CAPTURED, EVERYTHING)
    assert_as_captured(driver)
    assert {made.state for made in driver.made} <= {"destroyed"}
    assert instantiate_changed(driver, CAPTURED, SERIAL).links == full(*row(4))


def test_a_node_that_stays_enabled_fails_the_change() -> None:
    """What was asked for is read back, whatever the runtime said."""
    driver = graph()
    driver.keeps_enabled = frozenset({2})
    with pytest.raises(MeasurementError) as caught:
        instantiate_changed(driver, CAPTURED, EVERYTHING)
    assert str(caught.value) == "1 of 2 nodes were disabled and still are not"
    assert_as_captured(driver)
    assert [made.state for made in driver.made] == ["destroyed"]


def test_a_graph_whose_links_do_not_change_fails_the_change() -> None:
    """Links that the runtime did not add are missed before anything is made."""

    class Deaf(FakeGraph):
        def add(self, links: Sequence[Link]) -> None:
            super().add([link for link in links if not link.is_full])

    driver = Deaf(4, set(CAPTURED))
    with pytest.raises(MeasurementError, match="the graph lacks 3 edges"):
        instantiate_changed(driver, CAPTURED, SERIAL)
    assert_as_captured(driver)
    assert driver.made == []


def test_a_graph_that_cannot_be_restored_is_not_used_again() -> None:
    """The line says so, nothing executable is left, and the next change is refused."""
    driver = graph(destroy_delays=1)
    driver.failing["add"] = 4  # the first that puts a captured link back
    with pytest.raises(MeasurementError) as caught:
        instantiate_changed(driver, CAPTURED, SERIAL)
    assert str(caught.value) == (
        "the captured graph could not be made what it was: add fails"
    )
    assert [made.state for made in driver.made] == ["destroyed"]
    with pytest.raises(MeasurementError, match="the graph lacks 3 edges"):
        instantiate_changed(driver, CAPTURED, SERIAL)


def test_an_interrupted_change_is_undone() -> None:
    """Ctrl-C while a graph is made leaves it as it was captured."""

    class Interrupted(FakeGraph):
        def upload(self, executable: FakeExecutable) -> None:
            super().upload(executable)
            raise KeyboardInterrupt

    driver = Interrupted(4, set(CAPTURED))
    with pytest.raises(KeyboardInterrupt):
        instantiate_changed(driver, CAPTURED, EVERYTHING)
    assert_as_captured(driver)
    assert [made.state for made in driver.made] == ["destroyed"]


def test_links_are_verified_one_by_one() -> None:
    """The same links in any order pass; one that differs in a port is named."""
    chain = full(*row(3))
    verify(chain, reversed(chain))
    with pytest.raises(MeasurementError) as caught:
        verify(full((0, 1), (1, 2)), [Link(0, 1, from_port=2), *full((1, 2), (2, 3))])
    assert str(caught.value) == (
        "the graph lacks 1 edges that it should have and has 2 that it should not, "
        "such as 0 to 1 (full, ports 2 and 0)"
    )
