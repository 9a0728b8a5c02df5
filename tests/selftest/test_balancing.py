import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.selftest.balancing import missing_ns, spinning
from layerscope.selftest.cases import Launch

ARM = (
    Launch(region="attention", role="first"),
    Launch(region="moe", role="tail", spin_ns=100),
    Launch(region="moe", role="tail", spin_ns=100),
)


@pytest.mark.parametrize(
    ("faster_ns", "spin_ns"),
    [(1_000.0, 600), (-50.0, 75), (0.0, 100), (-900.0, 1), (9e9, 1_000_000)],
)
def test_spinning_kernels_share_what_is_missing(faster_ns: float, spin_ns: int) -> None:
    """Half each of two; never less than something or more than they may."""
    assert missing_ns(ARM, faster_ns) == spin_ns


def test_only_those_spin_that_did() -> None:
    """The others stay as they are."""
    assert [launch.spin_ns for launch in spinning(ARM, 600)] == [0, 600, 600]
