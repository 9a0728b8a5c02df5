import ctypes

import pytest
import torch

from layerscope_standard import launching
from layerscope_standard.kernels import Kernel, Launch
from layerscope_standard.launching import CudaLauncher, packed


def test_arguments_have_the_types_of_the_kernels() -> None:
    """Pointers, null, int and float, and nothing wider."""
    tensor = torch.zeros(3)
    values, kinds = packed((tensor, None, 7, 0.5))
    assert values == (tensor.data_ptr(), 0, 7, 0.5)
    pointer = ctypes.c_void_p
    assert kinds == (pointer, pointer, ctypes.c_int, ctypes.c_float)


def test_shared_memory_is_only_ever_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that needs less must not take from one that was prepared before."""
    driver = pytest.importorskip("cuda.bindings.driver")
    asked: list[int] = []

    def allow(_function: object, _attribute: object, value: int) -> tuple[object]:
        asked.append(value)
        return (driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuFuncSetAttribute", allow)
    monkeypatch.setattr(launching, "_function", lambda *_: None)
    launcher = CudaLauncher(torch.device("cuda", 0), programmatic=False)
    kernel = Kernel("experts", "a_kernel_of_this_test", 32)
    for kib in (40, 60, 50, 60, 70):
        launcher.prepare(Launch(kernel, (1, 1, 1), (), kib << 10))
    assert asked == [60 << 10, 70 << 10]
