"""Runs a `Study` on this device, and writes the run as it goes."""

from layerscope.runner.flow import profile
from layerscope.runner.setting import RunnerOptions

__all__ = ["RunnerOptions", "profile"]
