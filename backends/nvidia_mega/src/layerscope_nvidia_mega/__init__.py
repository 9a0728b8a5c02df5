"""The backend ``nvidia_mega``: the standard chain with less waiting and fewer kernels."""

__version__ = "0.1.0"
