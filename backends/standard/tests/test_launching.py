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


def test_stamps_are_read_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the module's own memory, before anything may write there again."""
    driver = pytest.importorskip("cuda.bindings.driver")
    there = torch.arange(1, 13)
    done: list[str] = []

    def find(module: str, name: bytes) -> tuple[object, int, int]:
        assert (module, name) == ("a module", b"stamps")
        return driver.CUresult.CUDA_SUCCESS, there.data_ptr(), there.nbytes

    def copy(to: int, place: int, size: int) -> tuple[object]:
        done.append("copied")
        ctypes.memmove(to, place, size)
        return (driver.CUresult.CUDA_SUCCESS,)

    def fill(place: int, value: int, size: int) -> tuple[object]:
        done.append("cleared")
        ctypes.memset(place, value, size)
        return (driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuModuleGetGlobal", find)
    monkeypatch.setattr(driver, "cuMemcpyDtoH", copy)
    monkeypatch.setattr(driver, "cuMemsetD8", fill)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: done.append("waited"))
    monkeypatch.setattr(launching, "_module", lambda *_: "a module")
    launcher = CudaLauncher(torch.device("cuda", 0), programmatic=True)
    kernel = Kernel("norm", "norm_rows", 32, stamps=("norm", 3))
    found = launcher.read_stamps(kernel)
    assert found.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert not there.any()
    assert done == ["copied", "cleared", "waited"]
