"""Reads the Chrome JSON of PyTorch's profiler, of all ages, and of Triton's Proton."""

from layerscope.ingest.kineto.reader import read

__all__ = ["read"]
