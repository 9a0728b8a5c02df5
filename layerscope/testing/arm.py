"""One arm of the backend under test, on one problem, with its fallback."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import torch
from torch import Tensor

from layerscope import registry
from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Replay
from layerscope.layers.feed import restart
from layerscope.layers.problem import Problem, new_slots, poison
from layerscope.plugin import BackendSpec
from layerscope.regions import Mark, Region, layer_pass, observing, region
from layerscope.registry import Dispatched
from layerscope.study import Arm
from layerscope.testing.raising import calling


class _Listener:
    """Observes marks, so that a name that is none is refused as under a recorder."""

    def opened(self, mark: Mark) -> None:
        """Nothing to note."""

    def closed(self, mark: Mark) -> None:
        """Nothing to note."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring regions, all of the backend under test or all of the fallback."""

    is_own: bool
    regions: tuple[Region, ...]

    @property
    def name(self) -> str:
        """Its regions, to begin a sentence with."""
        return " + ".join(self.regions)


class ArmUnderTest:
    """Runs the passes of a problem as a study would."""

    def __init__(self, backend: BackendSpec, arm: Arm, problem: Problem) -> None:
        """Build `arm`, and the fallback for what it does not cover."""
        self.problem = problem
        self.name = arm.name
        with calling("a second build"):
            self._dispatched: Dispatched = registry.dispatch(arm, problem, backend)
        self._player = player_for(problem.device)
        self._head = head_for(problem.feed)
        self._replay: Replay | None = None

    @property
    def groups(self) -> tuple[Group, ...]:
        """The regions in order, parted where the fallback takes over or gives back."""
        own = {
            decision.region: decision.backend == self._dispatched.backend.name
            for decision in self._dispatched.decisions
        }
        return tuple(
            Group(is_own, tuple(regions))
            for is_own, regions in groupby(self.problem.spec.regions, own.__getitem__)
        )

    def covers(self, name: Region) -> bool:
        """Whether the backend under test runs the region `name` itself."""
        return any(group.is_own and name in group.regions for group in self.groups)

    def run(self, group: Group, index: int) -> None:
        """Enqueue the regions of `group` of pass `index`."""
        with observing(_Listener()), layer_pass(index):
            if self._dispatched.whole is not None:
                with region(Region.OTHER), calling(f"run_layer of pass {index}"):
                    self._dispatched.whole.run_layer(index)
                return
            for name in group.regions:
                with region(name), calling(f"run of {name} of pass {index}"):
                    self._dispatched.steps[name].run(name, index)

    def expert_ids(self, index: int) -> Tensor | None:
        """The experts that the backend under test says it chose in pass `index`."""
        if not self.covers(Region.MOE):
            return None
        whole = self._dispatched.whole
        step = self._dispatched.steps[Region.MOE] if whole is None else whole
        with calling("expert_ids"):
            return step.expert_ids(index)

    def replay(self, step: int) -> tuple[Tensor, ...]:
        """Run every pass on the inputs of `step`; copies of all that they wrote.

        What the passes must write is poisoned before. The player has a stream of its
        own, so it waits for whatever is prepared on torch's.
        """
        if self._replay is None:
            self.wait()
            self._replay = self._player.capture(self._play, self.problem.passes)
        restart(self.problem.feed, 1, step)
        poison(self.problem)
        self.wait()
        self._replay.launch()
        self.wait()
        return tuple(tensor.clone() for tensor in self._results())

    def read_stamps(self) -> Mapping[str, Tensor] | None:
        """What its blocks noted in the last pass; None where no step notes anything."""
        stamping = self._dispatched.stamping
        self.wait()
        with calling("read_stamps"):
            return None if stamping is None else stamping.read_stamps()

    def wait(self) -> None:
        """Block until everything enqueued has finished."""
        self._player.wait()
        if self.problem.device.type != "cpu":
            torch.cuda.synchronize(self.problem.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._replay is not None:
            self._replay.close()

    def _play(self, passes: int) -> None:
        with region(Region.OTHER):
            self._head()
        for index in range(passes):
            for group in self.groups:
                self.run(group, index)

    def _results(self) -> list[Tensor]:
        found = []
        for index, buffers in enumerate(self.problem.buffers):
            slots, cache = new_slots(self.problem, index), self.problem.caches[index]
            pages = (cache.key, cache.value)
            found += [buffers.out, *(each.flatten(0, 1)[slots] for each in pages)]
        return found
