import re

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from cuda.bindings import nvrtc

from layerscope.graphs.own_kernels import cubin
from layerscope.graphs.skeleton import DEEP, THREADS, Order
from layerscope.graphs.stage_kernels import _COUNT, NAMES, SOURCE


def flag(name: str) -> str:
    """What the kernels call a member of `Order`: kReadFirst for READ_FIRST."""
    return "k" + name.title().replace("_", "")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_kernels_compile(architecture: str) -> None:
    """Also for devices on which no kernel can start early."""
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # how the bindings say that the library is absent
        pytest.skip(f"NVRTC is not installed: {error}")
    image = cubin(SOURCE, architecture)
    assert all(name.encode() in image for name in NAMES)


def test_host_and_kernels_mean_the_same_by_a_flag() -> None:
    """The numbers in the source are those of `Order`."""
    found = {name: int(value) for name, value in re.findall(r"(k\w+) = (\d+)", SOURCE)}
    expected = {flag(member.name or ""): member.value for member in Order}
    expected |= {"kCount": _COUNT, "kThreads": THREADS}
    assert {name: found.get(name) for name in expected} == expected
    assert f"stage<{DEEP}>(" in SOURCE
