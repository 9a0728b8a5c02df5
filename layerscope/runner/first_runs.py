"""Graphs that may hang run first in a process of their own, which is then ended.

An edit can make a graph wait for what never comes, and so can a kernel that waits for
another. On a GPU that others use, that must not happen in a process that holds results;
and no call of CUDA ends a kernel, but the end of its process does.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Final, Literal

import msgspec

from layerscope.experiment import Experiment
from layerscope.runner.workload import Recipe

FIRST_RUN_STEPS: Final = 2
"""Steps of inputs that a graph is run on: what holds for one may not for the next."""

RUN_LIMIT_S: Final = 2.0
"""How long one graph may run."""

_START_LIMIT_S: Final = 240.0
"""How long the process may take to make the arms again; compiling ones are slow."""

_END_LIMIT_S: Final = 10.0
_CHILD: Final = "layerscope.runner.first_run_child"
_NOT_READY: Final = "the process for its first run could not make the arm"
_NEVER_RUN: Final = "it was not among the graphs that ran in a process of their own"


class FirstRun(msgspec.Struct, frozen=True, kw_only=True):
    """One graph to be run: edited, or as captured where its kernels wait."""

    arm: str
    experiment: Experiment

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"{self.arm}, {self.experiment.name}"


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """First runs that were made before, with those of other workloads."""

    reasons: Mapping[FirstRun, str]
    """Why each must not be measured; empty where it may."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the other process is asked to do."""

    recipe: Recipe
    runs: list[FirstRun]
    passes: int
    device: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what it says: it is ready, or a run begins or has ended."""

    event: Literal["ready", "begin", "end"]
    run: int = -1
    reason: str = ""  # of an end: why the graph must not be measured; empty if it may
    is_last: bool = False  # of an end: the process can run no more


class _Child:
    """The process, which imports what it needs, and its lines as they come."""

    def __init__(self) -> None:
        # A pipe that nobody reads would fill, and block the process.
        self._said = TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(  # noqa: S603 (this Python, and a module of ours)
            [sys.executable, "-m", _CHILD, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._pump = Thread(target=self._read_all, daemon=True)
        self._pump.start()
        self._last = ""
        self.has_ended = False
        """Whether it said its last, by itself."""

        self.status = 0
        """The exit status, once it has ended."""

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once; `end` is still to come."""
        self._process.kill()

    def send(self, order: Order) -> None:
        """Let it begin; one that has ended is told by `read`."""
        try:
            with suppress(BrokenPipeError), self._pipe(self._process.stdin) as pipe:
                pipe.write(msgspec.json.encode(order))
        except BaseException:
            self.end()
            raise

    def read(self, limit_s: float) -> Message | None:
        """The next message; None where the process ended, or took too long."""
        with suppress(Empty):
            line = self._lines.get(timeout=limit_s)
            if line:
                return msgspec.json.decode(line, type=Message)
            self.has_ended = True
        return None

    def end(self) -> str:
        """End the process, whatever it waits for; the last line that it wrote.

        One that has ended by itself is left the time to say why.
        """
        if self._said.closed:
            return self._last
        if self.has_ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_LIMIT_S)
        self._process.kill()
        self.status = self._process.wait(_END_LIMIT_S)
        self._pump.join(_END_LIMIT_S)
        self._pipe(self._process.stdout).close()
        with suppress(BrokenPipeError):  # an order that it did not read whole
            self._pipe(self._process.stdin).close()
        with self._said:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip()
        self._last = lines.rpartition("\n")[2]
        return self._last

    def _read_all(self) -> None:
        for line in self._pipe(self._process.stdout):
            self._lines.put(line)
        self._lines.put(b"")  # it has ended

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            msg = "a process with pipes has none"
            raise AssertionError(msg)
        return pipe


class Ahead:
    """A process that gets ready, and runs graphs, while this one does other things.

    It takes one order. A thread watches it, so that a graph that hangs is ended,
    whatever this process does meanwhile.
    """

    def __init__(self) -> None:
        """Start it: it imports what it will need, and waits for its order."""
        self._child = _Child()
        self._watcher: Thread | None = None
        self._reasons: dict[FirstRun, str] = {}

    def is_running(self) -> bool:
        """Whether the process is there, and may use the device."""
        return self._child.is_running()

    def send(self, order: Order) -> None:
        """Let it make the arms and run the graphs."""
        self._child.send(order)
        self._watcher = Thread(target=self._watch, args=(order,), daemon=True)
        self._watcher.start()

    def reasons(self) -> dict[FirstRun, str]:
        """Wait for what was ordered, as `first_runs`; the process has ended then.

        Where the process had to be ended, not all runs are there, and none where it
        could not make the arms: one that will not be measured may be the cause.
        """
        if self._watcher is not None:
            self._watcher.join()
        return self._reasons

    def close(self) -> None:
        """End it, whatever it does."""
        self._child.kill()
        if self._watcher is not None:
            self._watcher.join()
        self._child.end()

    def _watch(self, order: Order) -> None:
        self._reasons, _ = _followed(self._child, order)


@contextmanager
def getting_ready(*, is_wanted: bool) -> Iterator[Ahead | None]:
    """A process for first runs that gets ready during the block, and ends with it."""
    if not is_wanted:
        yield None
        return
    ahead = Ahead()
    try:
        yield ahead
    finally:
        ahead.close()


def first_runs(
    recipe: Recipe | KnownRuns,
    runs: Sequence[FirstRun],
    passes: int,
    device: str,
    ahead: Ahead | None = None,
) -> dict[FirstRun, str]:
    """Run every graph of `runs` once elsewhere.

    After one that hangs or takes the process down, the others run in a new one.

    Args:
        recipe: makes the workload; or what was found before, and then none is run.
        runs: what to run.
        passes: of every replay.
        device: of torch, where they run.
        ahead: a process that may have run some of them already.

    Returns:
        Why each must not be measured here; empty where it may.
    """
    if isinstance(recipe, KnownRuns):
        return {run: recipe.reasons.get(run, _NEVER_RUN) for run in runs}
    reasons = {} if ahead is None else ahead.reasons()
    while left := [run for run in runs if run not in reasons]:
        child = _Child()
        order = Order(recipe=recipe, runs=left, passes=passes, device=device)
        child.send(order)
        found, why = _followed(child, order)
        if why:
            found = dict.fromkeys(left, f"{_NOT_READY}: {why}")
        reasons |= found
    return {run: reasons[run] for run in runs}


def _followed(child: _Child, order: Order) -> tuple[dict[FirstRun, str], str]:
    """The reasons of at least the first run of `order`, which `child` has; and why not.

    The latter is empty but where there are none, for the process did not get ready.
    """
    ready, reasons = None, {}
    try:
        ready = child.read(_START_LIMIT_S)
        if ready is not None:
            reasons = _watch(child, order.runs)
    finally:
        last = child.end()
    if ready is None:
        return {}, last or f"it was not ready within {_START_LIMIT_S:g} s"
    return reasons, ""


def _watch(child: _Child, runs: list[FirstRun]) -> dict[FirstRun, str]:
    """Follow the runs until the process is done, or one of them does not end."""
    reasons: dict[FirstRun, str] = {}
    for run in runs:
        begun = child.read(_START_LIMIT_S)
        is_running = begun is not None and begun.event == "begin"
        ended = child.read(RUN_LIMIT_S) if is_running else begun
        if ended is None:
            limit_s = RUN_LIMIT_S if is_running else _START_LIMIT_S
            reasons[run] = _why_no_end(child, limit_s)
            break
        reasons[run] = ended.reason
        if ended.is_last:
            break
    return reasons


def _why_no_end(child: _Child, limit_s: float) -> str:
    last = child.end()
    if child.has_ended:
        told = f": {last}" if last else ""
        return f"its first run ended its process with status {child.status}{told}"
    return (
        f"its first run, in a process of its own, did not end within {limit_s:g} s; "
        "that process was ended"
    )
