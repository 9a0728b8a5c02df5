import pytest

from layerscope.analyze.read_curve import cold_read_ns
from layerscope.run_header import ReadCost

READS = [
    ReadCost(bytes=1_000, duration_ns=2_000.0),
    ReadCost(bytes=3_000, duration_ns=2_400.0),
    ReadCost(bytes=7_000, duration_ns=4_400.0),
]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 2_000.0),  # latency
        (1_000, 2_000.0),
        (2_000, 2_200.0),
        (5_000, 3_400.0),
        (7_000, 4_400.0),
        (9_000, 5_400.0),  # as fast as between the last two
    ],
)
def test_reads_between_sizes_lie_on_straight_lines(size: int, expected: float) -> None:
    """Below the first its time, beyond the last its speed."""
    assert cold_read_ns(READS, size) == pytest.approx(expected, rel=1e-12)
