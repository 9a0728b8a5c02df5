"""The arms of a run, by name, as comparisons are asked for."""

from layerscope.errors import InputError
from layerscope.run import Run
from layerscope.study import AA_SUFFIX


def check_arms(run: Run, arms: tuple[str, str]) -> None:
    """Refuse two arms that cannot be compared.

    Raises:
        InputError: one is not in the run, or both are one.
    """
    for arm in arms:
        check_arm(run, arm)
    if arms[0] == arms[1]:
        again = arm_names(run)[-1]
        is_there = again.endswith(AA_SUFFIX)
        hint = f"; the same arm captured again is {again!r}" if is_there else ""
        msg = f"{arms[0]} is named twice{hint}"
        raise InputError(msg)


def check_arm(run: Run, arm: str) -> None:
    """Refuse an arm that `run` does not have, or that is compared with no other.

    Raises:
        InputError: naming those that it has.
    """
    known, study = arm_names(run), run.header.study
    if any(one.name == arm for one in (*study.switch_arms, *study.stamp_arms)):
        msg = (
            f"{arm!r} is there for --each-switch or --stamps, and compared with no "
            f"other arm; its figures: layerscope show {run.path}"
        )
        raise InputError(msg)
    if arm not in known:
        msg = f"{run.path} has no arm {arm!r}; it has {', '.join(known)}"
        raise InputError(msg)


def arm_names(run: Run) -> tuple[str, ...]:
    """Every arm of the run's study, the A/A arm last, where there is one."""
    return tuple(arm.name for arm in run.header.study.all_arms)


def partial_warnings(*runs: Run) -> tuple[str, ...]:
    """A line for every run that stopped before its plan was done."""
    return tuple(
        f"{run.path} is partial: {run.header.status_reason}"
        for run in runs
        if run.header.status == "partial"
    )
