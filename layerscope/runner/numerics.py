"""Numerics before time: every arm is checked on fresh inputs, before it is timed."""

from math import inf

from layerscope.errors import BackendError
from layerscope.run_header import NumericsCheck
from layerscope.runner.bench import Bench
from layerscope.runner.waits import refuse_given_up


def check_arms(bench: Bench, *, is_brief: bool = False) -> list[NumericsCheck]:
    """Check every arm of the current capture; returns the worst error of each.

    What a replay must write is poisoned before it, so that what was not written shows.
    Replays of every length are checked, at least two of an arm: the second would show
    an input that never changed.

    Args:
        bench: with its replays captured.
        is_brief: of every length one replay and its last pass, whose input all passes
            before it have made; enough of arms that were checked in another capture.

    Raises:
        BackendError: an arm is wrong, or did other work than it was asked to, and
            somebody named it.
    """
    checks = []
    bench.restart(hold=1)
    for arm in bench.arms:
        try:
            checks.append(_check(bench, arm, is_brief=is_brief))
        except BackendError as error:
            if not bench.leave_out(arm, error):
                raise
    return checks


def _check(bench: Bench, arm: str, *, is_brief: bool) -> NumericsCheck:
    bound = bench.workload.bound(arm)
    lengths = sorted({length for _, length in bench.replays})
    if not is_brief:
        lengths.append(lengths[-1])
    error = max(_trial(bench, arm, length, is_brief=is_brief) for length in lengths)
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


def _trial(bench: Bench, arm: str, length: int, *, is_brief: bool) -> float:
    workload = bench.workload
    bench.player.wait()
    workload.poison()
    bench.player.wait()
    bench.replays[arm, length].launch()
    bench.next_step()
    bench.player.wait()
    refuse_given_up(bench, arm)
    checked = workload.checked(length)
    told = checked[-1:] if is_brief else checked
    return max(workload.error(arm, index, length) for index in told)
