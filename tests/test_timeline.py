from dataclasses import FrozenInstanceError

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.environment import DeviceFacts, Environment
from layerscope.errors import RecordError
from layerscope.schema import KERNELS, RANGES, empty
from layerscope.timeline import Timeline

ENVIRONMENT = Environment(
    device=DeviceFacts(type="cpu", name="Paper CPU"),
    platform="Linux",
    python="3.12.0",
    packages={},
)


def test_frames_conform_once_made() -> None:
    """A timeline holds its frames in the order and types of the schemas."""
    ranges = pl.DataFrame(
        {"end_ns": [9.0], "start_ns": [4], "name": ["moe"], "kind": ["region"]}
    )
    made = Timeline(empty(KERNELS), ranges, ENVIRONMENT)
    expected = pl.DataFrame(
        {"kind": ["region"], "name": ["moe"], "start_ns": [4], "end_ns": [9]}
    )
    assert_frame_equal(made.ranges, expected)
    assert made.kernels.schema == KERNELS


@pytest.mark.parametrize(
    ("kernels", "ranges", "what"),
    [
        (empty(RANGES), empty(RANGES), "kernels"),
        (empty(KERNELS), empty(KERNELS), "ranges"),
    ],
)
def test_unfit_frames_are_refused(
    kernels: pl.DataFrame, ranges: pl.DataFrame, what: str
) -> None:
    """A frame in another schema is an error that names it."""
    with pytest.raises(RecordError, match=f"^{what}: lacks "):
        Timeline(kernels, ranges, ENVIRONMENT)


def test_timelines_are_values() -> None:
    """A timeline cannot be changed, and comparing two never raises."""
    one, other = (
        Timeline(empty(KERNELS), empty(RANGES), ENVIRONMENT) for _ in range(2)
    )
    assert one != other
    with pytest.raises(FrozenInstanceError):
        one.kernels = other.kernels  # type: ignore[misc]
