import numpy as np
import pytest

from layerscope.errors import MeasurementError

buffers = pytest.importorskip(
    "layerscope.record.cupti_buffers",
    reason="the cuda extra is not installed",
    exc_type=ImportError,
)
KERNEL, COPY, FILL = buffers.KINDS


def records(kind: int, *correlations: int) -> bytes:
    """Records of a kind, as CUPTI would write them, one a correlation id."""
    made = np.zeros(len(correlations), buffers.layout(kind))
    made["kind"] = kind
    made["correlation_id"] = correlations
    return made.tobytes()


def test_records_of_several_kinds_in_one_buffer_are_told_apart() -> None:
    """CUPTI steps through a buffer itself; each record has the layout of its kind."""
    collected = buffers.Buffers()
    collected._filled = [
        records(KERNEL, 1, 2) + records(FILL, 3) + records(KERNEL, 4),
        records(COPY, 5) + records(KERNEL, 6),
    ]
    taken = collected.take()
    assert {kind: list(found["correlation_id"]) for kind, found in taken.items()} == {
        KERNEL: [1, 2, 4, 6],
        COPY: [5],
        FILL: [3],
    }
    assert all(len(found) == 0 for found in collected.take().values())


def test_an_empty_buffer_has_no_records() -> None:
    """CUPTI hands back buffers in which nothing was recorded."""
    collected = buffers.Buffers()
    collected._filled = [b""]
    assert all(len(found) == 0 for found in collected.take().values())


def test_records_that_are_shorter_than_their_layout_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another version of CUPTI wrote them: no field can be trusted."""
    written = records(KERNEL, 1, 2)
    size = buffers.layout(KERNEL).itemsize
    newer = np.dtype([("kind", "<i4"), ("rest", "V", size + 28)])
    monkeypatch.setattr(buffers, "layout", lambda _: newer)
    collected = buffers.Buffers()
    collected._filled = [written]
    with pytest.raises(MeasurementError) as caught:
        collected.take()
    assert str(caught.value).startswith(
        f"CUPTI's records have {size} bytes where cupti-python expects {size + 32}: "
    )
