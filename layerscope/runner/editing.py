"""Edited graphs of a replay, as experiments ask for them."""

from collections.abc import Callable
from typing import TypeAlias

from layerscope.errors import MeasurementError
from layerscope.experiment import Experiment
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.replay import Editable, Replay

Needed: TypeAlias = Callable[[str, Experiment], bool]
"""Whether the graph of an arm, edited so, is needed."""

NOT_EDITABLE = "graphs are not edited here"
"""Why nothing is tried on a CPU, or through torch's own graphs."""


def every(_arm: str, _experiment: Experiment) -> bool:
    """That every edited graph is needed."""
    return True


def whole(_arm: str, experiment: Experiment) -> bool:
    """Whether an edited graph still does all the work."""
    return not experiment.without


def planned(
    replay: Replay, experiment: Experiment, allowed: Allowed
) -> Change | list[str]:
    """What `experiment` changes in the graph of `replay`, or every reason against it.

    An empty change says that the graph is already what the experiment would make of it.
    """
    if not isinstance(replay, Editable):
        return [NOT_EDITABLE]
    return plan(experiment, replay.nodes, replay.links, allowed)


def changed(replay: Replay, experiment: Experiment, allowed: Allowed) -> Change:
    """As `planned`, of an experiment that must be possible.

    Raises:
        MeasurementError: it is not; with every reason.
    """
    change = planned(replay, experiment, allowed)
    if isinstance(change, list):
        raise MeasurementError("; ".join(change))
    return change


def edited(replay: Replay, change: Change) -> Replay:
    """The replay of the graph with `change` made; `replay` stays as it was.

    Raises:
        MeasurementError: the graph cannot be edited so, or not be instantiated then.
    """
    if not isinstance(replay, Editable):
        raise MeasurementError(NOT_EDITABLE)
    return replay.variant(change)
