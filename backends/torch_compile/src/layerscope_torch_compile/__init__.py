"""The ``torch_compile`` backend of layerscope: regions compiled by inductor.

Each region of a layer is one function that `torch.compile` turns into kernels, without
a graph break and without a call that hides what inductor could fuse.
"""

from layerscope_torch_compile.backend import BACKEND

__all__ = ["BACKEND"]
__version__ = "0.1.0"
