from layerscope.graphs.eager import EagerReplay
from layerscope.graphs.replay import Editable, Link


def test_a_link_is_full_without_type_and_ports() -> None:
    """A programmatic edge, and one that leaves another port, are not."""
    assert Link(0, 1).is_full
    assert not Link.early(0, 1).is_full
    assert not Link(0, 1, from_port=2).is_full
    assert not Link(0, 1, programmatic=True).is_full


def test_an_early_link_is_what_cuda_captures() -> None:
    """Type 1, from port 1 to port 0; its full twin joins the same nodes."""
    link = Link.early(3, 4)
    assert link == Link(3, 4, programmatic=True, from_port=1, to_port=0)
    assert link.full == Link(3, 4)


def test_eager_replays_cannot_be_edited() -> None:
    """Without a graph there is nothing to edit."""
    assert not isinstance(EagerReplay(lambda _: None, 1), Editable)
