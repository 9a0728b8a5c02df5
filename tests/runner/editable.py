"""Scripted replays whose graphs can be edited, and a first run that a test answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from layerscope.errors import MeasurementError
from layerscope.experiment import Experiment
from layerscope.graphs.edits import Allowed, Change
from layerscope.graphs.replay import HEAD_PASS, Link, Node, Replay
from layerscope.layers.problem import Problem
from layerscope.runner import trials
from layerscope.runner.bench import Bench
from layerscope.runner.first_runs import Ahead, FirstRun
from layerscope.runner.workload import Recipe
from layerscope.study import Study
from tests.runner import fakes

NODES = (
    Node(0, 100, "kernel", HEAD_PASS, "other"),
    Node(1, 101, "kernel", 0, "attention"),
    Node(2, 102, "kernel", 0, "o_proj_all_reduce"),
    Node(3, 103, "kernel", 0, "moe"),
)
FULL = (Link(0, 1), Link(1, 2), Link(2, 3))
EARLY = (Link(0, 1), Link.early(1, 2), Link.early(2, 3))


@dataclass(eq=False)
class EditedReplay(fakes.ScriptedReplay):
    """A replay that keeps what it was made of, and whether it was closed."""

    change: Change = field(default_factory=Change)
    is_closed: bool = False

    def close(self) -> None:
        """Once."""
        assert not self.is_closed
        self.is_closed = True


@dataclass(eq=False)
class EditableReplay(fakes.ScriptedReplay):
    """A replay of four kernels in a chain."""

    nodes: tuple[Node, ...] = NODES
    links: tuple[Link, ...] = FULL
    made: list[EditedReplay] = field(default_factory=list)
    fails: str = ""
    breaks: str = ""

    def variant(self, change: Change) -> Replay:
        """A replay that counts for the same arm."""
        if self.fails:
            raise MeasurementError(self.fails)
        if self.breaks:
            raise RuntimeError(self.breaks)
        made = EditedReplay(
            self.arm, self.passes, self.problem, self.seen, change=change
        )
        self.made.append(made)
        return made


class Answering(fakes.ScriptedWorkload):
    """A layer whose outputs are of the test's choice."""

    def __init__(self, problem: Problem, arms: Sequence[str]) -> None:
        super().__init__(
            problem,
            {arm.name: fakes.dispatched(arm) for arm in (fakes.REFERENCE, fakes.FUSED)},
        )
        del arms
        self.given: list[Tensor] = []
        self.skippable = ("attention", "moe")

    def outputs(self, arm: str, passes: int) -> list[Tensor]:
        """The next of what was given; else always the same."""
        del arm, passes
        return [self.given.pop(0) if self.given else torch.ones(2)]

    def allowed(self, arm: str) -> Allowed:
        """Regions of every arm."""
        del arm
        return Allowed(skippable=self.skippable)


def editable_bench(of: Study, folder: Path, *early: str) -> Bench:
    """A bench of editable replays; the arms in `early` have programmatic edges."""
    bench = fakes.bench(of, folder, lambda *_: 1_000)
    made = fakes.workload(bench).problem
    seen: list[int] = []
    for arm, length in bench.replays:
        links = EARLY if arm in early else FULL
        bench.replays[arm, length] = EditableReplay(
            arm, length, made, seen, links=links
        )
    bench.workload = Answering(made, bench.arms)
    bench.recipe = Recipe(factory="tests:none", arguments={})
    return bench


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> dict[FirstRun, str]:
    """What first runs answer, by run, an empty reason unless told; and what was run."""
    told: dict[FirstRun, str] = {}

    def answer(
        recipe: Recipe,
        runs: Sequence[FirstRun],
        passes: int,
        device: str,
        ahead: Ahead | None,
    ) -> dict[FirstRun, str]:
        assert ahead is None
        assert recipe.factory == "tests:none"
        assert (passes, device) == (1, "cpu")
        return {run: told.setdefault(run, "") for run in runs}

    monkeypatch.setattr(trials, "first_runs", answer)
    return told


def experiments(study: Study, *asked: Experiment) -> Study:
    """`study` with experiments."""
    return msgspec.structs.replace(study, experiments=asked)
