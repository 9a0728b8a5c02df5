"""Workloads that the process of first runs can make, and edits that go as told."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from layerscope.errors import MeasurementError
from layerscope.experiment import Experiment
from layerscope.graphs.edits import Allowed, Change
from layerscope.graphs.replay import Replay
from layerscope.layers.feed import Feed, Pool, make_feed
from layerscope.regions import region
from layerscope.runner import editing
from layerscope.runner.workload import Recipe

HANGING = "LAYERSCOPE_TEST_HANGING"
"""Names a file that gets the number of the process that hangs."""

QUITTING = "quit"
"""An arm whose kernels give up as they were captured."""

CPU = torch.device("cpu")


class Counting:
    """Every pass adds the step's input to a sum that began at zero."""

    def __init__(self) -> None:
        rows, target = torch.ones(1, 3), torch.zeros(3)
        self._target = target
        self._sums = torch.zeros(8, 3)
        self.given_up = torch.zeros(1, dtype=torch.int32)
        self._feed = make_feed(1, (Pool(rows, target),), CPU)

    @property
    def feed(self) -> Feed:
        """Ones."""
        return self._feed

    def run_pass(self, arm: str, index: int, passes: int) -> None:
        """The pass's number times the input."""
        del passes
        if arm == QUITTING:
            self.given_up.fill_(1)
        with region("sum"):
            self._sums[index] = self._target * (index + 1)

    def poison(self) -> None:
        """All sums are wrong."""
        self._sums.fill_(torch.nan)

    def outputs(self, arm: str, passes: int) -> Sequence[Tensor]:
        """The sums."""
        del arm
        return [self._sums[:passes]]

    def bound(self, arm: str) -> float:
        """A little."""
        del arm
        return 1e-3

    def abort(self, arm: str) -> Tensor:
        """One for all arms."""
        del arm
        return self.given_up

    def allowed(self, arm: str) -> Allowed:
        """Everything is."""
        del arm
        return Allowed()


class Changed:
    """A replay that does something else than the one it was made of."""

    def __init__(self, replay: Replay, instead: Callable[[Replay], None]) -> None:
        self._replay = replay
        self._instead = instead

    def launch(self) -> None:
        """Do it."""
        self._instead(self._replay)


def _hang(replay: Replay) -> None:
    del replay
    if HANGING in os.environ:
        Path(os.environ[HANGING]).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(60)


def _fail(replay: Replay) -> None:
    del replay
    msg = "CUDA error: unspecified launch failure\nSearch for it"
    raise RuntimeError(msg)


def _raise(replay: Replay) -> None:
    del replay
    msg = "not a failure of the device"
    raise TypeError(msg)


def _die(replay: Replay) -> None:
    del replay
    os._exit(7)


INSTEAD: dict[str, Callable[[Replay], None]] = {
    "right": lambda replay: replay.launch(),
    "idle": lambda _: None,
    "hang": _hang,
    "die": _die,
    "raise": _raise,
    "fail": _fail,
    "give up": lambda _: None,
}
"""What an edited graph does; the one that gives up is known to its workload only."""


def _give_up(replay: Replay, workload: Counting) -> None:
    replay.launch()
    workload.given_up.fill_(1)


def make(
    how: dict[str, str], *, arms: Sequence[str], passes: int, device: str
) -> Counting:
    """A workload whose edited graphs do what `how` says of their arm."""
    assert set(arms) <= set(how)
    sys.stdout.write('{"event": "ready"}\n')  # as code of the user's own may
    assert (passes, device) == (4, "cpu")
    made = Counting()

    def changed(replay: Replay, experiment: Experiment, allowed: Allowed) -> Change:
        del replay
        assert allowed == Allowed()
        told = how[experiment.serial]
        if told == "refuse":
            msg = "the graph cannot be instantiated"
            raise MeasurementError(msg)
        return Change(disabled=(list(INSTEAD).index(told),))

    def edited(replay: Replay, change: Change) -> Replay:
        (index,) = change.disabled
        if list(INSTEAD)[index] == "give up":
            return Changed(replay, partial(_give_up, workload=made))  # type: ignore[return-value]
        return Changed(replay, list(INSTEAD.values())[index])  # type: ignore[return-value]

    editing.__dict__["changed"] = changed
    editing.__dict__["edited"] = edited
    return made


def fail(**_: object) -> Counting:
    """An arm that cannot be made again."""
    msg = "no weights there"
    raise MeasurementError(msg)


def recipe(**how: str) -> Recipe:
    """A recipe whose arms are edited as told, by arm."""
    return Recipe(factory=f"{__name__}:make", arguments={"how": how})


BROKEN = Recipe(factory=f"{__name__}:fail", arguments={})
