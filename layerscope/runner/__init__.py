"""Runs a `Study` on this device, and writes the run as it goes."""

from layerscope.runner.profile import RunnerOptions, profile

__all__ = ["RunnerOptions", "profile"]
