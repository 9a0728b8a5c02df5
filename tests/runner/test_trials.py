from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import polars as pl
import pytest
import torch

from layerscope.errors import BackendError, DeviceLostError
from layerscope.experiment import SERIAL, Experiment
from layerscope.graphs.replay import Link, Node
from layerscope.run_header import Trial
from layerscope.runner.bench import Bench
from layerscope.runner.first_runs import Ahead, FirstRun, Order
from layerscope.runner.recording import recorded_graphs
from layerscope.runner.trials import check_variants, try_ahead, try_experiments
from layerscope.runner.waits import GAVE_UP_AS_CAPTURED
from tests import handmade
from tests.runner import fakes
from tests.runner.editable import (
    Answering,
    EditableReplay,
    EditedReplay,
    editable_bench,
    elsewhere,
    experiments,
)

__all__ = ["elsewhere"]

WITHOUT_MOE = Experiment(without="moe")
TWIN_WITHOUT_MOE = Experiment(serial="all", without="moe")
WITHOUT_O_PROJ = Experiment(without="o_proj_all_reduce")


def bench(
    folder: Path, *asked: Experiment, early: tuple[str, ...] = ("fused",)
) -> Bench:
    """A bench asked for experiments; the graph of ``fused`` has programmatic edges."""
    return editable_bench(experiments(fakes.study(), *asked), folder, *early)


def trials(of: Bench) -> dict[tuple[str, str], tuple[str, str]]:
    """Outcome and reason by arm and experiment."""
    return {
        (trial.arm, trial.experiment.name): (trial.outcome, trial.reason)
        for trial in of.writer.header.trials
    }


def answers(of: Bench) -> Answering:
    """The bench's workload, as what it is."""
    assert isinstance(of.workload, Answering)
    return of.workload


@pytest.mark.usefixtures("elsewhere")
def test_a_serial_graph_is_its_own_twin_and_the_other_is_edited(
    tmp_path: Path,
) -> None:
    """The twin is made of every length, and only of the arm that needs one."""
    made = bench(tmp_path, SERIAL)
    try_experiments(made)
    assert made.writer.header.trials == [
        Trial(arm="reference", experiment=SERIAL, outcome="same"),
        Trial(arm="fused", experiment=SERIAL, outcome="measured", edges_changed=2),
    ]
    assert made.experiments == {"fused": (SERIAL,)}
    assert set(made.variants) == {("fused", "serial", 1), ("fused", "serial", 2)}
    assert made.graphs() == (
        ("reference", "captured"),
        ("fused", "captured"),
        (fakes.AGAIN, "captured"),
        ("fused", "serial"),
    )
    assert made.writer.header.programmatic == {"fused": [2, 3]}
    edges = made.writer.finish("complete").edges
    fused = edges.filter(pl.col("arm") == "fused").drop("arm", "experiment")
    assert fused.rows() == [
        (0, 1, False, 0, 0),
        (1, 2, True, 1, 0),
        (2, 3, True, 1, 0),
    ]
    assert edges["arm"].unique(maintain_order=True).to_list() == made.arms
    assert edges["experiment"].unique().to_list() == ["captured"]


@dataclass
class Waiting:
    """Stands for a process that is ready."""

    orders: list[Order] = field(default_factory=list)
    is_closed: bool = False

    def close(self) -> None:
        """Note it."""
        self.is_closed = True

    def send(self, order: Order) -> None:
        """Keep it."""
        self.orders.append(order)


def test_nothing_runs_elsewhere_once_anchors_are_timed(tmp_path: Path) -> None:
    """The process that got ready is ended, also where it is asked for nothing."""
    made = bench(tmp_path, SERIAL, early=())
    waiting = Waiting()
    made.ahead = cast("Ahead", waiting)
    try_experiments(made)
    assert [trial.outcome for trial in made.writer.header.trials] == ["same", "same"]
    assert waiting.is_closed


def test_all_that_may_be_asked_is_tried_ahead(tmp_path: Path) -> None:
    """Every arm with every experiment, before any graph is known."""
    made = bench(tmp_path, SERIAL, WITHOUT_O_PROJ)
    try_ahead(made)  # no process is ready
    waiting = Waiting()
    made.ahead = cast("Ahead", waiting)
    try_ahead(made)
    (order,) = waiting.orders
    assert [(run.arm, run.experiment) for run in order.runs] == [
        (arm, experiment)
        for arm in ("reference", "fused")
        for experiment in (SERIAL, WITHOUT_O_PROJ)
    ]
    assert (order.recipe, order.passes, order.device) == (made.recipe, 1, "cpu")


@pytest.mark.usefixtures("elsewhere")
def test_an_arm_of_switches_is_asked_for_its_own_experiments_only(
    tmp_path: Path,
) -> None:
    """Its twin is made, and timed, but not recorded."""
    study = msgspec.structs.replace(
        experiments(fakes.study(fakes.REFERENCE), SERIAL, WITHOUT_MOE),
        switch_arms=(fakes.FUSED,),
        switch_experiments={"fused": (SERIAL,)},
    )
    made = editable_bench(study, tmp_path, "reference", "fused")
    try_experiments(made)
    assert made.experiments == {
        "reference": (SERIAL, WITHOUT_MOE),
        "fused": (SERIAL,),
    }
    assert made.graphs()[3:] == (("reference", "serial"), ("fused", "serial"))
    assert recorded_graphs(made)[3:] == (("reference", "serial"),)


@pytest.mark.usefixtures("elsewhere")
def test_leaving_a_region_out_of_a_twin_that_is_the_graph_itself_is_the_same(
    tmp_path: Path,
) -> None:
    """The rows without the region of the captured graph stand for it."""
    made = bench(tmp_path, SERIAL, WITHOUT_MOE, TWIN_WITHOUT_MOE)
    try_experiments(made)
    found = trials(made)
    assert found["reference", "without moe"] == ("measured", "")
    assert found["reference", "serial, without moe"] == (
        "same",
        "its graph is serial as captured: see without moe",
    )
    assert found["fused", "serial, without moe"] == ("measured", "")
    nodes = {trial.nodes_disabled for trial in made.writer.header.trials}
    assert nodes == {0, 1}


@pytest.mark.usefixtures("elsewhere")
def test_a_region_that_may_not_be_left_out_is_refused(tmp_path: Path) -> None:
    """Its backend does not declare it."""
    made = bench(tmp_path, WITHOUT_O_PROJ)
    try_experiments(made)
    outcome, reason = trials(made)["fused", "without o_proj_all_reduce"]
    assert outcome == "refused"
    assert "o_proj_all_reduce" in reason
    assert made.variants == {}


def test_what_failed_elsewhere_is_not_made_here(
    tmp_path: Path, elsewhere: dict[FirstRun, str]
) -> None:
    """With the reason of the other process; the other arms are still tried."""
    elsewhere[FirstRun(arm="fused", experiment=SERIAL)] = "it hung"
    made = bench(tmp_path, SERIAL, early=("fused", "reference"))
    try_experiments(made)
    assert trials(made) == {
        ("reference", "serial"): ("measured", ""),
        ("fused", "serial"): ("refused", "it hung"),
    }
    assert made.experiments == {"reference": (SERIAL,)}


@pytest.mark.usefixtures("elsewhere")
def test_only_a_region_left_out_of_a_serial_graph_is_known_already(
    tmp_path: Path,
) -> None:
    """A delay of the twin is an edit of its own."""
    delayed = Experiment(serial="all", delay="moe", delay_ns=500)
    made = bench(tmp_path, SERIAL, delayed)
    try_experiments(made)
    assert trials(made)["reference", "serial, moe delayed by 500 ns"] == (
        "measured",
        "",
    )


@pytest.mark.usefixtures("elsewhere")
def test_an_edit_that_a_later_capture_does_not_allow_is_discarded(
    tmp_path: Path,
) -> None:
    """The study goes on without it; nothing runs that was not tried."""
    made = bench(tmp_path, SERIAL, WITHOUT_MOE)
    try_experiments(made)
    for length in (1, 2):
        replay = made.replays["fused", length]
        assert isinstance(replay, EditableReplay)
        replay.nodes = (*replay.nodes, Node(4, 104, "kernel", 0, "moe"))
        replay.links = (*replay.links, Link(3, 4))
    made.variants.clear()
    made._edit_again("fused", WITHOUT_MOE)
    check_variants(made)
    assert trials(made)["fused", "without moe"] == (
        "discarded",
        "the graph was captured otherwise than when this was tried",
    )
    assert made.experiments["fused"] == (SERIAL,)


@pytest.mark.usefixtures("elsewhere")
def test_a_failure_of_the_device_ends_the_study_and_names_the_experiment(
    tmp_path: Path,
) -> None:
    """After it nothing can be measured in this process."""
    made = bench(tmp_path, WITHOUT_MOE)
    replay = made.replays["reference", 1]
    assert isinstance(replay, EditableReplay)
    replay.breaks = "CUDA error: unspecified launch failure\nSearch for it"
    with pytest.raises(DeviceLostError) as raised:
        try_experiments(made)
    assert str(raised.value) == (
        "reference, without moe: RuntimeError: CUDA error: unspecified launch failure; "
        "no more can be measured in this process: run again with --no-experiments"
    )


def test_arms_that_no_other_process_can_make_are_refused(
    tmp_path: Path, elsewhere: dict[FirstRun, str]
) -> None:
    """Nothing edited runs here that has not run elsewhere."""
    made = bench(tmp_path, SERIAL)
    made.recipe = None
    try_experiments(made)
    outcome, reason = trials(made)["fused", "serial"]
    assert outcome == "refused"
    assert reason.endswith("cannot be made again there")
    assert (elsewhere, made.variants) == ({}, {})


@pytest.mark.usefixtures("elsewhere")
def test_a_graph_that_does_not_instantiate_here_is_refused(tmp_path: Path) -> None:
    """And nothing of it is left."""
    made = bench(tmp_path, SERIAL)
    replay = made.replays["fused", 2]
    assert isinstance(replay, EditableReplay)
    replay.fails = "the edited graph cannot be instantiated"
    try_experiments(made)
    assert trials(made)["fused", "serial"] == (
        "refused",
        "the edited graph cannot be instantiated",
    )
    assert made.experiments == {"fused": ()}
    assert made.variants == {}


@pytest.mark.usefixtures("elsewhere")
def test_an_edited_graph_with_other_results_is_refused(tmp_path: Path) -> None:
    """A twin may round otherwise within the arm's bound; a knock-out may not at all."""
    made = bench(tmp_path, SERIAL, WITHOUT_MOE)
    right, near = torch.ones(2), torch.tensor([1.0, 1.000001])
    answers(made).given = [right] * 4 + [right, near] * 2 + [right, near]
    try_experiments(made)
    other = "its results are not those of the captured graph, bit for bit"
    assert trials(made) == {
        ("reference", "serial"): ("same", ""),
        ("reference", "without moe"): ("measured", ""),
        ("fused", "serial"): ("measured", ""),
        ("fused", "without moe"): ("refused", other),
    }
    closed = [
        one.is_closed
        for replay in made.replays.values()
        if isinstance(replay, EditableReplay) and replay.arm == "fused"
        for one in replay.made
        if one.change.disabled
    ]
    assert closed == [True, True]


@pytest.mark.usefixtures("elsewhere")
def test_an_edited_graph_whose_kernels_give_up_waiting_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its results are; the arm goes on, with none given up."""
    made = bench(tmp_path, SERIAL)
    abort = fakes.workload(made).arms["fused"].waits.abort
    launch = EditedReplay.launch

    def give_up(replay: EditedReplay) -> None:
        launch(replay)
        abort.fill_(1)

    monkeypatch.setattr(EditedReplay, "launch", give_up)
    try_experiments(made)
    assert trials(made)["fused", "serial"] == ("refused", "its kernels gave up waiting")
    assert made.experiments == {"fused": ()}
    assert abort.tolist() == [0]


class GivingUp(EditableReplay):
    """A captured graph whose kernels give up, once `abort` is known."""

    abort: torch.Tensor | None = None

    def launch(self) -> None:
        """Give up."""
        super().launch()
        if self.abort is not None:
            self.abort.fill_(1)


def giving_up(of: Bench) -> torch.Tensor:
    """Let the captured graphs of ``fused`` give up; what they set."""
    abort = fakes.workload(of).arms["fused"].waits.abort
    for key, old in of.replays.items():
        if key[0] == "fused":
            assert isinstance(old, EditableReplay)
            made = GivingUp(old.arm, old.passes, old.problem, old.seen)
            made.links, made.abort = old.links, abort
            of.replays[key] = made
    return abort


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("asked", [SERIAL, WITHOUT_MOE])
def test_an_arm_whose_captured_graph_gives_up_ends_the_study(
    tmp_path: Path, asked: Experiment
) -> None:
    """The experiment is not what failed, and the arm must not be timed."""
    made = bench(tmp_path, asked)
    abort = giving_up(made)
    with pytest.raises(BackendError) as raised:
        try_experiments(made)
    assert str(raised.value) == (
        "fused is wrong: its kernels gave up waiting; nothing of it is kept"
    )
    assert abort.tolist() == [0]


@pytest.mark.usefixtures("elsewhere")
def test_an_arm_whose_captured_graph_gives_up_later_leaves_no_rows(
    tmp_path: Path,
) -> None:
    """Those of captures before are taken out again."""
    made = bench(tmp_path, SERIAL)
    try_experiments(made)
    made.writer.add_samples(handmade.samples())
    giving_up(made)
    with pytest.raises(BackendError, match="fused is wrong: its kernels gave up"):
        check_variants(made)
    assert trials(made)["fused", "serial"] == ("measured", "")
    kept = made.writer.finish("partial").samples
    assert set(kept["arm"]) == {"reference", fakes.AGAIN}


def test_an_arm_whose_captured_graph_gives_up_elsewhere_ends_the_study(
    tmp_path: Path, elsewhere: dict[FirstRun, str]
) -> None:
    """Nothing of it runs here."""
    elsewhere[FirstRun(arm="fused", experiment=SERIAL)] = GAVE_UP_AS_CAPTURED
    made = bench(tmp_path, SERIAL)
    with pytest.raises(BackendError) as raised:
        try_experiments(made)
    assert str(raised.value) == (
        "fused is wrong: its kernels gave up waiting as captured, in a process of its "
        "own"
    )
    assert made.variants == {}


@pytest.mark.usefixtures("elsewhere")
def test_an_experiment_that_goes_wrong_later_is_discarded(tmp_path: Path) -> None:
    """Its samples stay, its trial says that they are not to be used."""
    made = bench(tmp_path, SERIAL)
    try_experiments(made)
    answers(made).given = [torch.ones(2), torch.zeros(2)]
    check_variants(made)
    outcome, reason = trials(made)["fused", "serial"]
    assert outcome == "discarded"
    assert reason.startswith("its results differ from those of the captured graph")
    assert made.experiments == {"fused": ()}
    assert made.variants == {}


def test_graphs_that_cannot_be_edited_here_are_refused(
    tmp_path: Path, elsewhere: dict[FirstRun, str]
) -> None:
    """As on a CPU."""
    made = fakes.bench(experiments(fakes.study(), SERIAL), tmp_path, lambda *_: 1)
    try_experiments(made)
    assert trials(made) == {
        ("reference", "serial"): ("refused", "graphs are not edited here"),
        ("fused", "serial"): ("refused", "graphs are not edited here"),
    }
    assert elsewhere == {}
