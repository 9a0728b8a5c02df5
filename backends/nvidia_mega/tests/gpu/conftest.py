"""The bench of the tests below: the GPU."""

from backends.standard.tests.gpu.conftest import bench

__all__ = ["bench"]
