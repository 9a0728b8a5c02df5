import ctypes

import torch

from layerscope_standard.launching import packed


def test_arguments_have_the_types_of_the_kernels() -> None:
    """Pointers, null, int and float, and nothing wider."""
    tensor = torch.zeros(3)
    values, kinds = packed((tensor, None, 7, 0.5))
    assert values == (tensor.data_ptr(), 0, 7, 0.5)
    pointer = ctypes.c_void_p
    assert kinds == (pointer, pointer, ctypes.c_int, ctypes.c_float)
