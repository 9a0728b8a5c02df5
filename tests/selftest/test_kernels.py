import pytest

from layerscope.selftest.cases import CASES, Launch, Start
from layerscope.selftest.kernels import KERNELS, LONGEST_SPIN_NS, SOURCE, numbers
from layerscope.selftest.mixtures import MIXED

LAUNCHES = [
    *(launch for case in CASES for launch in (*case.base, *case.other)),
    *(launch for arm in MIXED.values() for launch in arm),
]


def test_the_kernels_compile() -> None:
    """For the first architecture with programmatic launches, without any device."""
    pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")
    from layerscope.graphs import own_kernels  # noqa: PLC0415 (needs bindings)

    try:
        image = own_kernels.cubin(SOURCE, "sm_90")
    except RuntimeError as error:  # how the bindings say that there is no library
        pytest.skip(str(error).splitlines()[0])
    for name in KERNELS:
        assert f".text.{name}\0".encode() in image


def test_every_launch_has_a_kernel() -> None:
    """And every kernel is launched by some case."""
    assert {launch.kernel for launch in LAUNCHES} == set(KERNELS)


def test_numbers_come_in_the_order_of_the_kernels_parameters() -> None:
    """Sweeps of an update, updates, extra sweeps, zero, start, time to spin."""
    launch = Launch(
        region="moe", role="tail", chunks=2, updates=3, extra=4, start=Start.LATE
    )
    assert numbers(launch, 5) == (10, 3, 20, 0, 2, 0)


def test_starts_are_numbered_as_the_kernels_do() -> None:
    """In the order of the enumeration in the source."""
    names = ", ".join(start.name for start in Start)
    assert f"enum Start {{ {names} }};" in SOURCE


def test_no_kernel_spins_for_longer_than_a_millisecond() -> None:
    """Whatever it is asked for."""
    launch = Launch(region="moe", role="tail", spin_ns=10**9)
    assert numbers(launch, 1)[-1] == LONGEST_SPIN_NS == 1_000_000


def test_programmatic_kernels_wait_before_they_touch_the_vector() -> None:
    """The last wait comes before the only line that does."""
    body = SOURCE[SOURCE.index("void update(") : SOURCE.index("#define KERNEL")]
    waits = [at for at in range(len(body)) if body.startswith("wait_for_others()", at)]
    assert waits
    assert body.count("vector[first]") == 1
    assert max(waits) < body.index("vector[first]")
