from collections.abc import Sequence

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.experiment import SERIAL
from layerscope.graphs.edits import Allowed
from layerscope.layers.feed import advance, restart
from layerscope.runner.first_runs import FirstRun, KnownRuns
from layerscope.runner.waits import has_given_up
from layerscope.runner.workload import Recipe
from layerscope.selftest import together as module
from layerscope.selftest.plan import NAMES, planted_arms
from layerscope.selftest.together import (
    RECIPE,
    PlantedTogether,
    edited_arms,
    planted,
    run_first,
)
from layerscope.selftest.workload import PlantedWorkload

CPU = torch.device("cpu")
PASSES = 2


@pytest.fixture
def workload() -> PlantedTogether:
    """Three arms of two studies, as the other process makes them."""
    made = planted(["less/other", "swap/base", "less/base"], PASSES, "cpu")
    assert isinstance(made, PlantedTogether)
    return made


def test_graphs_that_are_edited_are_those_that_overlap() -> None:
    """Of both arms or of one; all others are serial as captured."""
    assert [*edited_arms(NAMES)] == [
        ("trigger", "base"),
        ("trigger", "other"),
        ("early", "base"),
        ("early", "other"),
        ("branches", "other"),
        ("bandwidth", "other"),
        ("mixtures", "overlap"),
    ]


def test_every_study_has_its_own_inputs(workload: PlantedTogether) -> None:
    """A step loads the vectors of all of them, and an arm's output is its study's."""
    restart(workload.feed, 1, 3)
    advance(workload.feed)
    own = PlantedWorkload(*planted_arms("less"), PASSES, CPU).feed.pools[0].rows[3]
    first, second = (pool.target for pool in workload.feed.pools)
    assert torch.equal(first, own)
    assert workload.outputs("less/other", PASSES)[0] is first
    assert workload.outputs("less/base", PASSES)[0] is first
    assert workload.outputs("swap/base", PASSES)[0] is second


def test_all_vectors_are_poisoned(workload: PlantedTogether) -> None:
    """Whichever arm runs next."""
    workload.poison()
    assert [bool((pool.target == -1).all()) for pool in workload.feed.pools] == [
        True,
        True,
    ]


def test_arms_run_as_in_their_study(
    workload: PlantedTogether, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name that they have there."""
    ran: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        PlantedWorkload, "run_pass", lambda _, *pass_: ran.append(pass_)
    )
    workload.run_pass("swap/base", 1, PASSES)
    assert ran == [("base", 1, PASSES)]
    assert (workload.bound("swap/base"), workload.allowed("swap/base")) == (
        0.0,
        Allowed(),
    )


def first(arm: str) -> FirstRun:
    """The serial twin of `arm`."""
    return FirstRun(arm=arm, experiment=SERIAL)


def test_what_is_found_in_one_process_is_told_by_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All edited graphs run there; each study gets its own, by their names in it."""
    asked: list[FirstRun] = []

    def first_runs(
        recipe: Recipe, runs: Sequence[FirstRun], passes: int, device: str
    ) -> dict[FirstRun, str]:
        assert (recipe, passes, device) == (RECIPE, 8, "cpu")
        asked.extend(runs)
        return {run: "it hung" if "early" in run.arm else "" for run in runs}

    monkeypatch.setattr(module, "first_runs", first_runs)
    found = run_first(["early", "branches", "less"], CPU)
    assert asked == [first("early/base"), first("early/other"), first("branches/other")]
    assert found == {
        "early": KnownRuns({first("base"): "it hung", first("other"): "it hung"}),
        "branches": KnownRuns({first("other"): ""}),
        "less": KnownRuns({}),
    }


def test_no_process_is_started_where_no_graph_is_edited() -> None:
    """As for the cases whose arms are serial."""
    assert run_first(["less"], CPU) == {"less": KnownRuns({})}


def test_the_recipe_names_what_makes_the_workload() -> None:
    """It takes nothing but what every recipe is called with."""
    factory = "layerscope.selftest.together:planted"
    assert Recipe(factory=factory, arguments={}) == RECIPE


def test_no_kernel_of_it_can_give_up_waiting(workload: PlantedTogether) -> None:
    """A first run asks for that after every replay."""
    assert not has_given_up(workload, "less/other")
