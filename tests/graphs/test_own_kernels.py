import ctypes
import re

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from cuda.bindings import driver, nvrtc

from layerscope.errors import MeasurementError
from layerscope.graphs.calibration import SMALL_SOURCE
from layerscope.graphs.own_kernels import check, cubin, packed
from layerscope.graphs.probe_kernels import (
    ADVANCE_SOURCE,
    DELAY_SOURCE,
    delay_cycles,
)


@pytest.fixture(scope="module", autouse=True)
def _nvrtc() -> None:
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("source", [ADVANCE_SOURCE, DELAY_SOURCE, SMALL_SOURCE])
def test_every_kernel_compiles(source: str, architecture: str) -> None:
    """Also where there is no programmatic launch; the kernel is there by its name."""
    (name,) = re.findall(r'extern "C" __global__ void (\w+)', source)
    image = cubin(source, architecture)
    assert image.startswith(b"\x7fELF")
    assert name.encode() in image


def test_a_kernel_that_does_not_compile_says_where() -> None:
    """The compiler's first line is the cause."""
    with pytest.raises(MeasurementError) as caught:
        cubin('extern "C" __global__ void k() {\n  nothing();\n}', "sm_90")
    assert str(caught.value) == (
        "a kernel of layerscope does not compile: layerscope.cu(2): error: identifier "
        '"nothing" is undefined'
    )


def test_arguments_have_the_types_that_kernels_take() -> None:
    """Pointers, 64-bit integers and doubles, or a C type that is given."""
    x = torch.zeros(2)
    values, types = packed([x, 3, 0.5, ctypes.c_int(4)])
    assert values == (x.data_ptr(), 3, 0.5, 4)
    assert types == (
        ctypes.c_void_p,
        ctypes.c_longlong,
        ctypes.c_double,
        ctypes.c_int,
    )


def test_a_failed_call_of_the_driver_is_named() -> None:
    """The status of whatever refused is in the line; success gives the value."""
    statuses = driver.CUresult
    assert check((statuses.CUDA_SUCCESS, 5)) == 5
    assert check((statuses.CUDA_SUCCESS,)) is None
    with pytest.raises(MeasurementError, match="failed: CUDA_ERROR_INVALID_IMAGE"):
        check((statuses.CUDA_ERROR_INVALID_IMAGE, None))


def test_a_delay_counts_cycles_of_the_highest_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 1,980 MHz, 2,000 ns are 3,960 cycles."""
    asked = []

    def attribute(name: object, ordinal: int) -> tuple[object, int]:
        asked.append((name, ordinal))
        return driver.CUresult.CUDA_SUCCESS, 1_980_000

    monkeypatch.setattr(driver, "cuDeviceGetAttribute", attribute)
    assert delay_cycles(torch.device("cuda", 1), 2_000) == 3_960
    clock = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
    assert asked == [(clock, 1)]
