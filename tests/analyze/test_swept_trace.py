from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from tests.analyze.placed_kernels import Row, kernel, placed, trace


def swept(rows: list[Row], cut: dict[tuple[int | None, int], int]) -> SweptTrace:
    """A trace of these kernels."""
    return sweep_trace(trace(rows), placed(rows), {"nothing repeats": 1}, cut)


def test_devices_are_told_apart() -> None:
    """They are in order, the one without a number first."""
    rows = [kernel(0, 5, device=1), kernel(2, 7, device=None), kernel(3, 4)]
    found = swept(rows, {})
    assert found.devices == [None, 0, 1]
    own = [found.on(device)["duration_ns"].to_list() for device in found.devices]
    assert own == [[7], [4], [5]]
    assert found.architectures() == {0: "sm_90"}


def test_what_was_found_out_before_is_kept() -> None:
    """Why steps lack layers, and which layers are cut; these are noted."""
    found = swept([kernel(0, 5)], {(0, 0): 2, (0, 3): 1})
    assert found.without_layers == {"nothing repeats": 1}
    assert found.cut == {(0, 0): 2, (0, 3): 1}
    assert [(note.kind, note.count) for note in found.trust.notes] == [("doubted", 3)]
