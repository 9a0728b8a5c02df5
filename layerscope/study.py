"""The plan of a run: which arms, how many samples, in which order.

A `Study` is data; `runner` carries it out. Everything random in it follows from `seed`.
"""

import random
from collections.abc import Collection, Iterator, Mapping
from math import isfinite
from typing import Final, TypeAlias

import msgspec

from layerscope.experiment import Experiment
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.switches import TakenApart
from layerscope.trace_spec import TraceSpec

ANCHOR_LENGTHS: Final = (8, 16, 24)
"""Passes a replay under a graph; the slope over them is the time of a pass."""

EAGER_LENGTHS: Final = (8,)
"""Passes a replay without graphs: there is no launch whose cost must cancel."""

L2_FACTOR: Final = 5
"""Replays must touch this many times the L2 cache, so that no pass finds it warm."""

AA_SUFFIX: Final = " (A/A)"
STAMPS_SUFFIX: Final = " (stamps)"

MIN_ROUNDS: Final = 12
"""Rounds that a capture is planned to have at least."""

FEWEST_ROUNDS: Final = 6
"""Rounds that a capture gets even when the time budget has ended."""

FEWEST_CAPTURES: Final = 3
"""Captures that an arm gets even then: fewer show nothing of their spread."""


_FEWEST: Final = {
    "samples": 1,
    "captures": 1,
    "passes": 3,  # the first and the last of a replay are left out of the shares
}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """A backend with its switches, under the name that reports show."""

    backend: str
    switches: dict[str, str] = {}
    again: bool = False  # the first arm a second time: measures the noise
    label: str = ""  # instead of the backend with its switches, where these are many
    stamps: bool = False  # its kernels note when each of their blocks works

    @property
    def name(self) -> str:
        """``backend:switch=value``, with ``(A/A)`` for the second time."""
        switches = "".join(f":{key}={value}" for key, value in self.switches.items())
        name = self.label or f"{self.backend}{switches}"
        stamped = STAMPS_SUFFIX if self.stamps else ""
        return f"{name}{stamped}{AA_SUFFIX if self.again else ''}"


class CallableSpec(msgspec.Struct, frozen=True, kw_only=True, tag="callables"):
    """Code of the user's own, called on the same inputs by every arm."""

    inputs: tuple[str, ...]  # each as "bfloat16 [6, 2048]"
    regions: dict[str, list[str]] = {}  # patterns of module names, by region
    tolerance: float  # relative error against the first arm that is taken as equal


Spec: TypeAlias = LayerSpec | DraftSpec | CallableSpec | TraceSpec
"""What a study measures: fixes the work that every arm must do.

A `TraceSpec` fixes none: its run was made of what another tool had recorded.
"""


class SwitchStudy(msgspec.Struct, frozen=True, kw_only=True):
    """How switches of backends are told apart: as the fields of a `Study` say it."""

    taken_apart: tuple[TakenApart, ...] = ()
    arms: tuple[Arm, ...] = ()
    experiments: dict[str, tuple[Experiment, ...]] = {}


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, how often, and in which random order."""

    spec: Spec
    arms: tuple[Arm, ...]  # the first is the one others are compared with
    draft: DraftSpec | None = None  # measured after the layer, as a run of its own
    experiments: tuple[Experiment, ...] = ()  # asked of every arm that allows them
    # backends whose switches are told apart; the arms that do only that, and are
    # compared with no other; and what is asked of single arms for it, by name
    taken_apart: tuple[TakenApart, ...] = ()
    switch_arms: tuple[Arm, ...] = ()
    switch_experiments: dict[str, tuple[Experiment, ...]] = {}
    draft_switches: SwitchStudy | None = None  # the same of the draft
    # arms once more, whose kernels note when their blocks work; compared with no other
    stamp_arms: tuple[Arm, ...] = ()
    seed: int = 0
    samples: int = 800  # passes an arm, at least
    lengths: tuple[int, ...] = ANCHOR_LENGTHS
    captures: int = 8
    steps: int = 32  # distinct inputs that replays cycle through
    time_budget_s: float = 80.0  # of all phases, once weights exist
    target_interval: float = 0.003  # stop early once the paired interval is this small

    @property
    def passes(self) -> int:
        """Distinct passes (weights, KV, page table) that must exist."""
        return max(self.lengths)

    @property
    def all_arms(self) -> tuple[Arm, ...]:
        """The arms, and the first one again for the A/A floor; not those of a trace."""
        if isinstance(self.spec, TraceSpec):
            return self.arms
        first = self.arms[0]
        again = msgspec.structs.replace(first, again=True)
        return (*self.arms, again)

    @property
    def built_arms(self) -> tuple[Arm, ...]:
        """Every arm that is built and timed, but for the A/A arm."""
        return (*self.arms, *self.switch_arms, *self.stamp_arms)

    def asked(self, arm: str) -> tuple[Experiment, ...]:
        """The experiments that are asked of `arm`: all, or those of its switches."""
        is_compared = any(one.name == arm for one in self.arms)
        general = self.experiments if is_compared else ()
        own = self.switch_experiments.get(arm, ())
        return tuple(dict.fromkeys((*general, *own)))

    def keeping(self, arms: Collection[str]) -> "Study":
        """The same study without the arms whose names are not in `arms`."""
        return msgspec.structs.replace(
            self,
            arms=tuple(arm for arm in self.arms if arm.name in arms),
            switch_arms=tuple(arm for arm in self.switch_arms if arm.name in arms),
            stamp_arms=tuple(arm for arm in self.stamp_arms if arm.name in arms),
        )

    @property
    def rounds(self) -> int:
        """Rounds a capture, so that every arm gets `samples` passes in all."""
        needed = -(-self.samples // (sum(self.lengths) * self.captures))
        return max(needed, MIN_ROUNDS)


def lengths_up_to(passes: int | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths of replays up to `passes`, in as many equal steps as `default` has.

    None gives `default`.
    """
    if passes is None:
        return default
    steps = len(default)
    return tuple(passes * step // steps for step in range(1, steps + 1))


def count_reasons(
    counts: Mapping[str, int | None], budgets_s: Mapping[str, float]
) -> list[str]:
    """What is wrong with the counts and time budget of a study.

    Args:
        counts: of samples, captures and passes, by the names that the user knows them
            by, dashes before them aside; None is not checked.
        budgets_s: the time budget, by the user's name for it.
    """
    reasons = [
        f"{name} is {value}, and must be at least {_FEWEST[name.lstrip('-')]}"
        for name, value in counts.items()
        if value is not None and value < _FEWEST[name.lstrip("-")]
    ]
    return reasons + [
        f"{name} is {value:g}, and must be a number of seconds above 0"
        for name, value in budgets_s.items()
        if not (isfinite(value) and value > 0)
    ]


Graphs: TypeAlias = tuple[tuple[str, str], ...]
"""Arms, each with the name of an experiment on its graph."""


class Slot(msgspec.Struct, frozen=True):
    """One replay of a round."""

    position: int
    arm: str
    experiment: str
    passes: int


def order(study: Study, graphs: Graphs, seed: str) -> Iterator[list[Slot]]:
    """Endless rounds: every graph at every length once, freshly shuffled.

    Args:
        study: the plan.
        graphs: what is replayed.
        seed: fixes the order together with `study.seed`.
    """
    draw = random.Random(f"{study.seed}:{seed}")  # noqa: S311 (not a secret)
    cells = [(*graph, length) for graph in graphs for length in study.lengths]
    while True:
        draw.shuffle(cells)
        yield [Slot(i, *cell) for i, cell in enumerate(cells)]
