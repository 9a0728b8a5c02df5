"""What authors of backends test with: the conformance suite of the contract."""

from layerscope.testing.conformance import Conformance, check_backend

__all__ = ["Conformance", "check_backend"]
