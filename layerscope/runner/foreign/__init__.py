"""Code of the user's own as arms: read, called once, compared, then measured."""

from layerscope.runner.foreign.callables import CallableOptions, profile

__all__ = ["CallableOptions", "profile"]
