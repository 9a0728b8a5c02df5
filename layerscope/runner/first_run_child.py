"""The process in which graphs that may hang run first; see `first_runs`.

It reads an `Order` from its input and writes a `Message` a line. It never ends a run on
its own: the process that waits for it does.
"""

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import msgspec
import torch
from torch import Tensor

from layerscope.errors import LayerscopeError, MeasurementError, describe
from layerscope.experiment import Experiment
from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Player, Replay
from layerscope.layers.feed import restart
from layerscope.runner import editing
from layerscope.runner.body import body_of
from layerscope.runner.first_runs import (
    FIRST_RUN_STEPS,
    FirstRun,
    Message,
    Order,
)
from layerscope.runner.outputs import kept, why_other
from layerscope.runner.waits import GAVE_UP, GAVE_UP_AS_CAPTURED, has_given_up
from layerscope.runner.workload import FirstWorkload

Say: TypeAlias = Callable[[Message], None]
"""Tells the process that waits."""

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2)."""

_AGAIN: Final = 4
"""Launches of an edited graph on each."""


def main() -> None:
    """Make the arms, then every graph, and run it."""
    _end_with_parent()
    with _own_output() as say:
        _run(say)


def _end_with_parent() -> None:
    """Let the system end this process with the one that waits for it, where it can.

    Else a graph that hangs would go on for ever if that one were killed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it was killed before
        sys.exit(1)


@contextmanager
def _own_output() -> Iterator[Say]:
    """Where messages go; whatever else is printed is no message, and goes to stderr."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def say(message: Message) -> None:
            output.write(msgspec.json.encode(message) + b"\n")
            output.flush()

        yield say


def _run(say: Say) -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    device = torch.device(order.device)
    if device.type != "cpu":
        torch.cuda.set_device(device)
    with torch.no_grad():
        elsewhere = _Elsewhere(_workload(order), order.passes, say)
        say(Message(event="ready"))
        for index, run in enumerate(order.runs):
            try:
                reason = elsewhere.try_run(run, index)
            except LayerscopeError as error:
                reason = str(error)
            except RuntimeError as error:  # after one of CUDA's nothing works here
                reason = describe(error)
                say(Message(event="end", run=index, reason=reason, is_last=True))
                return
            say(Message(event="end", run=index, reason=reason))


def _workload(order: Order) -> FirstWorkload:
    module, _, name = order.recipe.factory.partition(":")
    factory: Callable[..., Any] = getattr(importlib.import_module(module), name)
    wanted = {
        "arms": sorted({run.arm for run in order.runs}),
        "passes": order.passes,
        "device": order.device,
    }
    made: FirstWorkload = factory(**order.recipe.arguments, **wanted)
    return made


class _Elsewhere:
    """A workload on its device, and replays of it."""

    def __init__(self, workload: FirstWorkload, passes: int, say: Say) -> None:
        self._say = say
        self._workload = workload
        self._passes = passes
        self._player: Player = player_for(workload.feed.device)
        self._head = head_for(workload.feed)
        self._replays: dict[str, Replay] = {}

    def try_run(self, run: FirstRun, index: int) -> str:
        """Run the graph once; why it must not be measured, or nothing."""
        begin = Message(event="begin", run=index)
        if run.experiment == Experiment():
            self._say(begin)  # capturing runs it too, to warm it
            replay = self._captured(run.arm)
            self._begin(0)
            self._launched(run.arm, replay, GAVE_UP_AS_CAPTURED)
            return ""
        replay = self._captured(run.arm)
        allowed = self._workload.allowed(run.arm)
        change = editing.changed(replay, run.experiment, allowed)
        if change.is_empty:
            return "it is the captured graph itself, as that was captured elsewhere"
        variant = editing.edited(replay, change)
        self._begin(0)
        before = kept(self._launched(run.arm, replay, GAVE_UP_AS_CAPTURED))
        self._say(begin)
        reason = self._why_other(run, variant, before)
        for step in range(1, FIRST_RUN_STEPS):
            self._begin(step)
            before = kept(self._launched(run.arm, replay, GAVE_UP_AS_CAPTURED))
            reason = reason or self._why_other(run, variant, before)
        return reason

    def _captured(self, arm: str) -> Replay:
        if arm not in self._replays:
            body = body_of(self._workload, self._head, arm)
            self._replays[arm] = self._player.capture(body, self._passes)
        return self._replays[arm]

    def _begin(self, step: int) -> None:
        """Let the next replays all run a step of the feed, or its first again."""
        feed = self._workload.feed
        restart(feed, 1 + _AGAIN, step % feed.steps)
        self._player.wait()

    def _why_other(
        self, run: FirstRun, variant: Replay, before: Sequence[Tensor]
    ) -> str:
        """Run the edited graph again and again; how its results differ from `before`.

        Without a pause, as a study does.
        """
        is_whole = not run.experiment.without
        if is_whole:
            self._workload.poison()
            self._player.wait()
        for _ in range(_AGAIN - 1):
            variant.launch()
        after = self._launched(run.arm, variant, GAVE_UP)
        return why_other(
            before, after, self._workload.bound(run.arm) if is_whole else None
        )

    def _launched(self, arm: str, replay: Replay, gave_up: str) -> Sequence[Tensor]:
        """What a replay gives.

        Raises:
            MeasurementError: it is not the arm's work, but it `gave_up`.
        """
        replay.launch()
        self._player.wait()
        if has_given_up(self._workload, arm):
            raise MeasurementError(gave_up)
        return self._workload.outputs(arm, self._passes)


if __name__ == "__main__":
    main()
