"""The backend ``nvidia_mega``: the standard chain, waiting less, with fewer kernels."""

from layerscope_nvidia_mega.backend import BACKEND

__all__ = ["BACKEND"]
__version__ = "0.1.0"
