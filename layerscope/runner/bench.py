"""The bench: one workload on one device, and what plays its arms."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from layerscope.errors import MeasurementError, describe
from layerscope.experiment import CAPTURED, Experiment
from layerscope.graphs.edits import Change
from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Player, Replay
from layerscope.layers.feed import restart
from layerscope.nvml import ClockReader
from layerscope.progress import Progress
from layerscope.record.nvtx import NvtxObserver, arm_range
from layerscope.regions import observing
from layerscope.run import RunWriter
from layerscope.runner.body import body_of
from layerscope.runner.editing import Needed, changed, edited, whole
from layerscope.runner.first_runs import Ahead, KnownRuns
from layerscope.runner.setting import RunnerOptions
from layerscope.runner.workload import ReadStamps, Recipe, Workload
from layerscope.study import Graphs, Study

WARM_LAUNCHES: Final = 2
"""Untimed launches of a fresh replay: first ones load code. Edited graphs have one."""


@dataclass(slots=True)
class Bench:
    """Everything that the phases of a run share."""

    study: Study
    workload: Workload
    player: Player
    writer: RunWriter
    progress: Progress
    clocks: ClockReader
    head: Callable[[], None]

    budget_s: float
    """Seconds that all phases together may take."""

    optional: frozenset[str] = frozenset()
    """Arms that nobody named: one that fails at first is left out with a warning."""

    deadline_s: float = inf
    """Monotonic time at which the budget ends."""

    experiments: dict[str, tuple[Experiment, ...]] = field(default_factory=dict)
    """By arm: those on its graph that are measured; none before they were tried."""

    recipe: Recipe | KnownRuns | None = None
    """How another process makes the workload, or what it found; None: it cannot."""

    ahead: Ahead | None = None
    """A process that makes it already, to try edited graphs first."""

    read_stamps: ReadStamps | None = None
    """None where no arm has stamps."""

    replays: dict[tuple[str, int], Replay] = field(default_factory=dict)
    """Of the current capture, by arm name and length."""

    variants: dict[tuple[str, str, int], Replay] = field(default_factory=dict)
    """Edited graphs of these, by arm, name of the experiment and length."""

    not_made: list[tuple[str, Experiment, str]] = field(default_factory=list)
    """Experiments that the current capture of an arm does not allow, and why."""

    step: int = -1
    """The step that the last enqueued replay runs; mirrors the device's counter."""

    is_cut: bool = False
    """Whether the budget ended something that was planned."""

    _launched: int = -1
    _hold: int = 1
    _captures: int = 0
    _changes: dict[tuple[str, str, int], Change] = field(default_factory=dict)

    @property
    def arms(self) -> list[str]:
        """Names of all arms in the study's order, the A/A arm last."""
        study = self.study
        return [arm.name for arm in (*study.built_arms, study.all_arms[-1])]

    def graphs(self, *, twins: bool = True) -> Graphs:
        """The captured graph of every arm, and those edited ones that do all the work.

        Args:
            twins: all of these; without, only the captured ones.
        """
        captured = [(arm, CAPTURED) for arm in self.arms]
        edited = [
            (arm, experiment.name)
            for arm, experiments in self.experiments.items()
            for experiment in experiments
            if twins and not experiment.without
        ]
        return (*captured, *edited)

    def capture(
        self, lengths: Sequence[int] | None = None, needed: Needed = whole
    ) -> None:
        """Replace all replays by fresh ones, and warm them.

        Arms are captured in a random order, for where a capture's memory lies depends
        on what was captured before it.

        Args:
            lengths: of the study's; None for all.
            needed: which edited graphs; those that do all the work, unless told.
        """
        self.release()
        seed = f"{self.study.seed}:capture:{self._captures}"
        self._captures += 1
        arms = self.arms
        random.Random(seed).shuffle(arms)  # noqa: S311 (not a secret)
        for arm in arms:
            try:
                self._capture(arm, lengths or self.study.lengths)
            except Exception as error:  # foreign code may raise anything
                if not self.leave_out(arm, error):
                    if not hasattr(error, "__notes__"):
                        error.add_note(f"raised while arm {arm!r} was captured")
                    raise
        self._warm([*self.replays.values()] * WARM_LAUNCHES)
        for arm, experiments in self.experiments.items():
            for experiment in experiments:
                if needed(arm, experiment):
                    self._edit_again(arm, experiment)

    def _edit_again(self, arm: str, experiment: Experiment) -> None:
        try:
            self.edit(arm, experiment)
        except MeasurementError as error:
            self.not_made.append((arm, experiment, str(error)))

    def edit(self, arm: str, experiment: Experiment) -> None:
        """Make the edited graphs of `experiment` on the current capture of `arm`.

        Raises:
            MeasurementError: the graph cannot be edited, or not be instantiated then.
        """
        allowed, made = self.workload.allowed(arm), []
        for (owner, length), replay in self.replays.items():
            if owner == arm:
                change = changed(replay, experiment, allowed)
                key = (arm, experiment.name, length)
                if self._changes.setdefault(key, change) != change:
                    msg = "the graph was captured otherwise than when this was tried"
                    raise MeasurementError(msg)
                made.append((length, edited(replay, change)))
        for length, replay in made:
            self.variants[arm, experiment.name, length] = replay
        if experiment.without:
            self._warm_after_whole(arm, [replay for _, replay in made])
        else:
            self._warm(replay for _, replay in made)

    def _warm_after_whole(self, arm: str, replays: Sequence[Replay]) -> None:
        """Warm replays that lack a region, once its results are those of the step."""
        launches = [self.longest(arm), *replays]
        self.restart(hold=len(launches))
        for replay in launches:
            replay.launch()
            self.next_step()
        self.player.wait()

    def _warm(self, replays: Iterable[Replay]) -> None:
        for replay in replays:
            replay.launch()
        self.player.wait()

    def drop(self, arm: str, experiment: Experiment) -> None:
        """Make no more edited graphs of `experiment` on `arm`, and close those made."""
        kept = tuple(one for one in self.experiments[arm] if one != experiment)
        self.experiments[arm] = kept
        self.player.wait()
        for key in [key for key in self.variants if key[:2] == (arm, experiment.name)]:
            self.variants.pop(key).close()

    def _capture(self, arm: str, lengths: Sequence[int]) -> None:
        body = body_of(self.workload, self.head, arm)
        try:
            with arm_range(arm), observing(NvtxObserver()):
                first: Replay | None = None
                for length in lengths:
                    replay = self.player.capture(body, length, first)
                    self.replays[arm, length] = replay
                    first = first or replay
        except MeasurementError as error:
            msg = f"{arm}: {error}"
            raise MeasurementError(msg) from error

    def leave_out(self, arm: str, error: Exception) -> bool:
        """Go on without `arm` if nobody named it and nothing of it was measured yet.

        The run says what happened; whether the arm was left out.
        """
        if arm not in self.optional or self._captures > 1:
            return False
        self.player.wait()
        for key in [key for key in self.replays if key[0] == arm]:
            self.replays.pop(key).close()
        self.study = self.study.keeping({*self.arms} - {arm})
        header = self.writer.header
        header.study = self.study
        header.warnings.append(f"left out {arm}: {describe(error)}")
        header.builds = [build for build in header.builds if build.arm != arm]
        header.decisions = [one for one in header.decisions if one.arm != arm]
        header.bytes = [row for row in header.bytes if row.arm != arm]
        header.w2_reads.pop(arm, None)
        return True

    def replay(self, arm: str, experiment: str, passes: int) -> Replay:
        """The current capture of an arm's graph, or an edited graph of it."""
        if experiment == CAPTURED:
            return self.replays[arm, passes]
        return self.variants[arm, experiment, passes]

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the seconds of the block to those of `what` in the header."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            phases = self.writer.header.phases
            phases[what] = phases.get(what, 0.0) + time.monotonic() - began_s

    def must_stop(self, done: int, fewest: int) -> bool:
        """Whether the budget has ended and `fewest` of what is planned are `done`."""
        if done < fewest or time.monotonic() < self.deadline_s:
            return False
        self.is_cut = True
        return True

    def longest(self, arm: str, experiment: str = CAPTURED) -> Replay:
        """The replay of `arm` with every pass."""
        return self.replay(arm, experiment, self.study.passes)

    def restart(self, hold: int) -> None:
        """Go on with the next step, and let `hold` replays in a row share each step.

        A round whose replays share a step compares arms and lengths on the same inputs
        and experts; without that, the draw of experts would be noise between them.
        """
        step = (self.step + 1) % self.workload.feed.steps
        self.player.wait()
        restart(self.workload.feed, hold, step)
        self.player.wait()
        self._launched, self._hold = step * hold - 1, hold

    def next_step(self) -> int:
        """Count one enqueued replay; the step it runs."""
        self._launched += 1
        self.step = self._launched // self._hold % self.workload.feed.steps
        return self.step

    def release(self) -> None:
        """Close all replays."""
        self.player.wait()
        for replay in (*self.variants.values(), *self.replays.values()):
            replay.close()
        self.variants.clear()
        self.replays.clear()


def open_bench(
    workload: Workload,
    writer: RunWriter,
    options: RunnerOptions,
    budget_s: float,
    recipe: Recipe | KnownRuns | None = None,
) -> Bench:
    """A bench for `workload` on the device of its feed; its budget begins now.

    The study is the one in the header of `writer`.
    """
    header = writer.header
    facts = header.environment.device
    return Bench(
        study=header.study,
        workload=workload,
        player=player_for(workload.feed.device),
        writer=writer,
        progress=options.progress,
        clocks=ClockReader(None if facts.type == "cpu" else facts.index, facts.uuid),
        head=head_for(workload.feed),
        optional=options.optional,
        recipe=recipe,
        budget_s=budget_s,
        deadline_s=time.monotonic() + budget_s,
    )
