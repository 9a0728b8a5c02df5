"""What can and cannot be measured on this machine, why, and how to mend it."""

from layerscope.doctor.examine import examine

__all__ = ["examine"]
