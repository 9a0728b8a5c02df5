"""Edited graphs of a replay, as experiments ask for them."""

from layerscope.errors import MeasurementError
from layerscope.experiment import Experiment
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.replay import Editable, Replay

NOT_EDITABLE = "graphs are not edited here"
"""Why nothing is tried on a CPU, or through torch's own graphs."""


def planned(
    replay: Replay, experiment: Experiment, allowed: Allowed
) -> Change | list[str]:
    """What `experiment` changes in the graph of `replay`, or every reason against it.

    An empty change says that the graph is already what the experiment would make of it.
    """
    if not isinstance(replay, Editable):
        return [NOT_EDITABLE]
    return plan(experiment, replay.nodes, replay.links, allowed)


def edited(replay: Replay, experiment: Experiment, allowed: Allowed) -> Replay:
    """The replay of the edited graph; `replay` stays as it was.

    Raises:
        MeasurementError: the graph cannot be edited so, or not be instantiated then.
    """
    change = planned(replay, experiment, allowed)
    if isinstance(change, list) or not isinstance(replay, Editable):
        reasons = change if isinstance(change, list) else [NOT_EDITABLE]
        raise MeasurementError("; ".join(reasons))
    return replay.variant(change)
