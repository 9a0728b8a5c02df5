"""Kernel names as people read them."""

from functools import cache

import torch


@cache
def demangled(name: str) -> str:
    """The C++ signature behind a mangled `name`; any other name as it is.

    Uses the demangler that torch carries, so that no compiler runtime is needed.
    """
    return torch._C._demangle(name) if name.startswith("_Z") else name  # noqa: SLF001
