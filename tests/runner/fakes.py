"""A bench whose clock, arms and recorder a test scripts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from layerscope import registry
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.layers.feed import advance
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import DType, LayerSpec
from layerscope.nvml import ClockReader, Clocks
from layerscope.plugin import BackendSpec, Step, Waits
from layerscope.progress import SilentProgress
from layerscope.record.recorder import Launch, Recorded
from layerscope.regions import Region
from layerscope.registry import Dispatched
from layerscope.run import RunWriter
from layerscope.run_header import Build
from layerscope.runner.bench import Bench
from layerscope.runner.layer import LayerWorkload
from layerscope.study import Arm, Study
from tests import handmade

SPEC = LayerSpec(model=handmade.model(), dtype=DType.FLOAT32, context=16)
REFERENCE, FUSED = Arm(backend="reference"), Arm(backend="fused")
AGAIN = "reference (A/A)"


def study(
    *arms: Arm, samples: int = 6, lengths: tuple[int, ...] = (1, 2), seed: int = 0
) -> Study:
    """Two arms unless told otherwise, one capture, two steps."""
    return Study(
        spec=SPEC,
        arms=arms or (REFERENCE, FUSED),
        seed=seed,
        samples=samples,
        lengths=lengths,
        captures=1,
        steps=2,
    )


def problem(of: Study) -> Problem:
    """The problem that the runner would make."""
    return make_problem(SPEC, ProblemOptions(passes=of.passes, steps=of.steps))


@dataclass
class ScriptedTiming:
    """Durations that were fixed when the replays were enqueued."""

    durations: list[int]
    told: Callable[[], None]

    def durations_ns(self) -> list[int]:
        """The durations, after telling that someone waits for them."""
        self.told()
        return self.durations


@dataclass(eq=False)
class ScriptedReplay:
    """A replay that only counts its step and notes which one it ran."""

    arm: str
    passes: int
    problem: Problem
    seen: list[int]
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def body(self, passes: int) -> None:
        """Count a replay."""
        del passes
        advance(self.problem.feed)

    def launch(self) -> None:
        """Count a replay, and note the step that it runs."""
        self.body(self.passes)
        self.seen.append(int(self.problem.feed.step))

    def close(self) -> None:
        """Hold nothing."""


Script = Callable[[str, int, int], int]
"""(arm, passes, round) -> duration in ns."""


@dataclass
class ScriptedPlayer:
    """Launches replays and answers with the durations of a script."""

    script: Script
    events: list[str] = field(default_factory=list)
    round: int = 0

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """Nothing is captured here."""
        raise AssertionError((body, passes, beside))

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Launch the replays of the next round."""
        index, self.round = self.round, self.round + 1
        self.events.append(f"enqueue {index}")
        durations = []
        for replay in replays:
            assert isinstance(replay, ScriptedReplay)
            replay.launch()
            durations.append(self.script(replay.arm, replay.passes, index))
        return ScriptedTiming(durations, lambda: self.events.append(f"wait {index}"))

    def wait(self) -> None:
        """Nothing is pending."""


class ScriptedClocks(ClockReader):
    """A GPU whose clock falls by 1 MHz every time it is read."""

    def __init__(self) -> None:
        self._sm_clock_mhz = 1_980

    def read(self) -> Clocks:
        """The clocks of the next round."""
        self._sm_clock_mhz -= 1
        return Clocks(
            sm_clock_mhz=self._sm_clock_mhz + 1,
            memory_clock_mhz=3_201,
            temperature_c=40,
            power_mw=None,
            throttle_reasons=0,
        )


@dataclass
class ScriptedRecorder:
    """A recorder that makes of every launch what a script says."""

    script: Callable[[Launch], Recorded]
    launches: list[Launch] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    name: str = "paper"

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Attached once, for all blocks."""
        assert not self.blocks
        yield

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Keep the launches and script their recordings."""
        self.launches += launches
        self.blocks.append(len(launches))
        return [self.script(launch) for launch in launches]


def dispatched(arm: Arm, steps: dict[Region, Step] | None = None) -> Dispatched:
    """An arm whose build cost nothing, running `steps` by region."""
    build = Build(arm=arm.name, seconds=0.0, device_bytes=0)
    waits = Waits.on(torch.device("cpu"))
    return Dispatched(arm, BACKEND, steps or {}, None, (), build, waits)


class ScriptedWorkload(LayerWorkload):
    """A layer whose replays must move bytes that a test can count."""

    def __init__(self, problem: Problem, arms: dict[str, Dispatched]) -> None:
        super().__init__(problem, arms)
        self.problem = problem
        self.arms = arms

    def required_bytes(self, step: int, passes: int) -> int:
        """10 bytes a pass, and one more a pass in step 1."""
        return passes * (10 + step)


def workload(bench: Bench) -> ScriptedWorkload:
    """The bench's workload, as what it is."""
    assert isinstance(bench.workload, ScriptedWorkload)
    return bench.workload


def bench(
    of: Study, folder: Path, script: Script, made: Problem | None = None
) -> Bench:
    """A bench of scripted replays of every arm and length."""
    made = made or problem(of)
    seen: list[int] = []
    return Bench(
        study=of,
        workload=ScriptedWorkload(
            made, {arm.name: dispatched(arm) for arm in of.built_arms}
        ),
        player=ScriptedPlayer(script),
        writer=RunWriter(folder, handmade.header(study=of)),
        progress=SilentProgress(),
        clocks=ScriptedClocks(),
        head=lambda: None,
        budget_s=100.0,
        replays={
            (arm.name, length): ScriptedReplay(arm.name, length, made, seen)
            for arm in (*of.built_arms, of.all_arms[-1])
            for length in of.lengths
        },
    )


Install = Callable[..., None]


def installer(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes ``fused`` a backend: the reference, but for the fields that are told."""

    def install(**changes: Any) -> None:  # noqa: ANN401 (any field of a backend)
        fields = BackendSpec.__dataclass_fields__
        values = {name: getattr(BACKEND, name) for name in fields} | {"name": "fused"}
        backend = BackendSpec(**(values | changes))
        monkeypatch.setitem(sys.modules, "fused_b", SimpleNamespace(BACKEND=backend))
        entry = EntryPoint("fused", "fused_b:BACKEND", "layerscope.backends")
        monkeypatch.setattr(registry, "entry_points", lambda **_: [entry])

    return install
