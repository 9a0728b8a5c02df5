"""The ``standard`` backend of layerscope: the chain of kernels a good server runs.

Every kernel is CUDA C++ that NVRTC compiles, launched with stock programmatic launch:
the attribute, a wait at entry, a trigger at the end.
"""

from layerscope_standard.backend import BACKEND

__all__ = ["BACKEND"]
__version__ = "0.1.0"
