"""The arms of several studies as one workload, whose edited graphs run first.

They do so in one process, for starting one takes longer than all that it does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from layerscope.experiment import SERIAL
from layerscope.graphs.edits import Allowed
from layerscope.layers.feed import Feed, make_feed
from layerscope.runner.first_runs import FirstRun, KnownRuns, first_runs
from layerscope.runner.workload import FirstWorkload, Recipe
from layerscope.selftest.cases import overlaps
from layerscope.selftest.plan import planted_arms
from layerscope.selftest.workload import STEPS, PlantedWorkload
from layerscope.study import ANCHOR_LENGTHS

_BETWEEN: Final = "/"  # the name of a study and that of its arm


class PlantedTogether:
    """The arms of several studies, for first runs."""

    def __init__(
        self, workloads: Mapping[str, PlantedWorkload], device: torch.device
    ) -> None:
        """Take workloads by the names of their studies; their arms get longer names."""
        pools = [pool for each in workloads.values() for pool in each.feed.pools]
        self._feed = make_feed(STEPS, tuple(pools), device)
        self._workloads = workloads

    @property
    def feed(self) -> Feed:
        """The vectors of all of them."""
        return self._feed

    def run_pass(self, arm: str, index: int, passes: int) -> None:
        """Enqueue the kernels of pass `index`."""
        workload, own_name = self._of(arm)
        workload.run_pass(own_name, index, passes)

    def poison(self) -> None:
        """Spoil every vector."""
        for workload in self._workloads.values():
            workload.poison()

    def bound(self, arm: str) -> float:
        """None: results are exact."""
        workload, own_name = self._of(arm)
        return workload.bound(own_name)

    def outputs(self, arm: str, passes: int) -> Sequence[Tensor]:
        """The vector of the arm's study."""
        workload, own_name = self._of(arm)
        return workload.outputs(own_name, passes)

    def allowed(self, arm: str) -> Allowed:
        """As its study says."""
        workload, own_name = self._of(arm)
        return workload.allowed(own_name)

    def abort(self, arm: str) -> None:
        """None: no kernel waits for one beside it."""

    def _of(self, arm: str) -> tuple[PlantedWorkload, str]:
        study, _, own_name = arm.partition(_BETWEEN)
        return self._workloads[study], own_name


def planted(arms: Sequence[str], passes: int, device: str) -> FirstWorkload:
    """The workload of these arms, in another process; see `Recipe`."""
    where = torch.device(device)
    studies = dict.fromkeys(arm.partition(_BETWEEN)[0] for arm in arms)
    made = {
        study: PlantedWorkload(*planted_arms(study), passes, where) for study in studies
    }
    return PlantedTogether(made, where)


RECIPE: Final = Recipe(factory=f"{planted.__module__}:{planted.__name__}", arguments={})


def edited_arms(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(study, arm) of all that overlap and so have another twin, of these studies."""
    for name in names:
        arms, _ = planted_arms(name)
        yield from ((name, arm) for arm, chain in arms.items() if overlaps(chain))


def run_first(names: Sequence[str], device: torch.device) -> dict[str, KnownRuns]:
    """Run the edited graphs of the studies `names` once elsewhere.

    Returns:
        What was found of the arms of each, under the names that they have in it.
    """
    wanted = {
        FirstRun(arm=f"{name}{_BETWEEN}{arm}", experiment=SERIAL): (name, arm)
        for name, arm in edited_arms(names)
    }
    reasons = first_runs(RECIPE, [*wanted], min(ANCHOR_LENGTHS), str(device))
    found: dict[str, dict[FirstRun, str]] = {name: {} for name in names}
    for run, (name, arm) in wanted.items():
        found[name][FirstRun(arm=arm, experiment=SERIAL)] = reasons[run]
    return {name: KnownRuns(runs) for name, runs in found.items()}
