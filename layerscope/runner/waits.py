"""Whether waits on the device have given up: what an arm did then is not its work."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from layerscope.errors import BackendError, DeviceLostError, LayerscopeError
from layerscope.runner.bench import Bench
from layerscope.runner.workload import FirstWorkload
from layerscope.study import AA_SUFFIX

GAVE_UP: Final = "its kernels gave up waiting"
"""Why results are not those of an arm."""

GAVE_UP_AS_CAPTURED: Final = f"{GAVE_UP} as captured"
"""The same of the graph that nobody edited, where it runs beside edited ones."""


def has_given_up(workload: FirstWorkload, arm: str) -> bool:
    """Whether a wait of `arm` has given up since this was last asked.

    Only while the device is idle: it reads and clears what waits look at.
    """
    abort = workload.abort(arm)
    if abort is None or not bool(abort.any()):
        return False
    abort.zero_()
    return True


def refuse_given_up(bench: Bench, arm: str) -> None:
    """Refuse an arm of which a wait has given up since this was last asked.

    Only while the device is idle.

    Raises:
        BackendError: one has; the run keeps nothing of the arm.
    """
    if has_given_up(bench.workload, arm):
        _forget(bench, [arm])
        msg = f"{arm} is wrong: {GAVE_UP}; nothing of it is kept"
        raise BackendError(msg)


@contextmanager
def trusting_waits(bench: Bench, what: str) -> Iterator[None]:
    """Read, once the block has measured, whether every arm did all of its work.

    An arm that did not is no longer in the run. Where something else ends the block,
    that is so too, and a warning.

    Args:
        bench: whose arms are measured in the block.
        what: is measured, as "the anchors of capture 1".

    Raises:
        BackendError: an arm's kernels gave up waiting.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, DeviceLostError):  # nothing can be read then
            # Where the device is lost otherwise this fails too, and `error` says why.
            with suppress(RuntimeError, LayerscopeError):
                bench.writer.header.warnings += _forgotten(bench, what)
        raise
    told = _forgotten(bench, what)
    if told:
        msg = f"{'; '.join(told)}; run again, or leave it out of --arms"
        raise BackendError(msg)


def _forgotten(bench: Bench, what: str) -> list[str]:
    """A sentence for each arm that gave up, of which the run now keeps nothing."""
    bench.player.wait()
    found = [arm for arm in bench.arms if has_given_up(bench.workload, arm)]
    if found:
        _forget(bench, found)
    return [f"{arm} gave up waiting in {what}; nothing of it is kept" for arm in found]


def _forget(bench: Bench, arms: list[str]) -> None:
    """Keep nothing of arms that gave up."""
    bench.player.wait()  # for what was cleared, before anything runs that looks at it
    bench.writer.forget([name for arm in arms for name in (arm, f"{arm}{AA_SUFFIX}")])
