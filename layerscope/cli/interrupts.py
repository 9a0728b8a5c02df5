"""Signals that ask the program to end, taken as Ctrl-C is."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in the block, so that it saves.

    A signal that is ignored (``nohup``) or handled already stays as it is. Python
    handles signals in the main thread only; in another nothing changes.
    """
    taken = [number for number in _ENDING if _is_free(number)]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _is_free(number: signal.Signals) -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(number) is signal.SIG_DFL
