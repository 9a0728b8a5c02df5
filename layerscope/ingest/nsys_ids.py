"""How Nsight Systems packs a process and a thread into one number.

From the most significant bits: the machine, 24 bits of process id, 24 of thread id.
"""

from typing import Final

import polars as pl

_SHIFT: Final = 1 << 24
_MASK: Final = _SHIFT - 1


def process_of(column: str) -> pl.Expr:
    """The process id in a ``globalTid`` or ``globalPid``; null stays null."""
    return (pl.col(column) // _SHIFT) & _MASK


def thread_of(column: str) -> pl.Expr:
    """The thread id in a ``globalTid``; null stays null."""
    return pl.col(column) & _MASK
