"""Runs a `Study` on this device, and writes the run as it goes."""

from layerscope.runner.flow import RunnerOptions, profile

__all__ = ["RunnerOptions", "profile"]
