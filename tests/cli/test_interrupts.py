import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from layerscope.cli.interrupts import interruptible

ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _by_default() -> Iterator[None]:
    """Signals do what they do to a program that was just started."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_end_is_a_keyboard_interrupt(number: signal.Signals) -> None:
    """Within the block only: after it the signal ends the process again."""
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_what_the_caller_ignores_stays_ignored() -> None:
    """`nohup` works: a hang-up goes by, then and later."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_other_threads_take_no_signals() -> None:
    """Python cannot install handlers there; the block runs as it is."""
    handlers: list[object] = []

    def run() -> None:
        with interruptible():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
