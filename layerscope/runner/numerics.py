"""Numerics before time: every arm is checked on fresh inputs, before it is timed."""

from math import inf

from layerscope.errors import BackendError
from layerscope.run_header import NumericsCheck
from layerscope.runner.bench import Bench


def check_arms(bench: Bench) -> list[NumericsCheck]:
    """Check every arm of the current capture; returns the worst error of each.

    What a replay must write is poisoned before it, so that what was not written shows.
    Replays of every length are checked, at least two of an arm: the second would show
    an input that never changed.

    Raises:
        BackendError: an arm is wrong, or did other work than it was asked to, and
            somebody named it.
    """
    checks = []
    bench.restart(hold=1)
    for arm in bench.arms:
        try:
            checks.append(_check(bench, arm))
        except BackendError as error:
            if not bench.leave_out(arm, error):
                raise
    return checks


def _check(bench: Bench, arm: str) -> NumericsCheck:
    bound = bench.workload.bound(arm)
    error = max(_trial(bench, arm, length) for length in _lengths(bench))
    passes = error <= bound
    check = NumericsCheck(arm=arm, error=error, bound=bound, passes=passes)
    if not passes:
        raise BackendError(_wrong(check, bench.workload.error_name))
    return check


def _wrong(check: NumericsCheck, error_name: str) -> str:
    if check.error == inf:
        return (
            f"{check.arm} is wrong: its output is not what the step can give, or not "
            "written at all; it was not timed"
        )
    return (
        f"{check.arm} is wrong: {error_name} {check.error:.2g}, bound "
        f"{check.bound:.2g}; it was not timed"
    )


def _lengths(bench: Bench) -> list[int]:
    """Lengths of the captured replays, the longest once more."""
    lengths = sorted({length for _, length in bench.replays})
    return [*lengths, lengths[-1]]


def _trial(bench: Bench, arm: str, length: int) -> float:
    workload = bench.workload
    bench.player.wait()
    workload.poison()
    bench.player.wait()
    bench.replays[arm, length].launch()
    bench.next_step()
    bench.player.wait()
    checked = workload.checked(length)
    return max(workload.error(arm, index, length) for index in checked)
