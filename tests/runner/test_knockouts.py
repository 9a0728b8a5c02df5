from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from layerscope.experiment import SERIAL, Experiment
from layerscope.graphs.replay import Replay, Timing
from layerscope.runner.bench import Bench
from layerscope.runner.knockouts import knock_out
from layerscope.runner.trials import try_experiments
from tests.runner import fakes
from tests.runner.editable import (
    Answering,
    EditedReplay,
    editable_bench,
    elsewhere,
    experiments,
)

__all__ = ["elsewhere"]

WITHOUT_MOE = Experiment(without="moe")
TWIN_WITHOUT_MOE = Experiment(serial="all", without="moe")


class Watching(fakes.ScriptedPlayer):
    """Says for every replay that is timed what was edited in it."""

    def time(self, replays: Sequence[Replay]) -> Timing:
        """100 ns a pass, less 40 without a region, and 10 more for a twin."""
        durations = []
        for replay in replays:
            assert isinstance(replay, fakes.ScriptedReplay)
            replay.launch()
            pass_ns = 100
            if isinstance(replay, EditedReplay):
                pass_ns -= 40 if replay.change.disabled else 0
                pass_ns += 10 if replay.change.remove else 0
            durations.append(pass_ns * replay.passes)
        return fakes.ScriptedTiming(durations, lambda: None)


@pytest.fixture
def bench(tmp_path: Path, elsewhere: object) -> Bench:
    """``fused`` has programmatic edges; both arms may lose their MoE."""
    del elsewhere
    asked = experiments(fakes.study(), SERIAL, WITHOUT_MOE, TWIN_WITHOUT_MOE)
    made = editable_bench(asked, tmp_path, "fused")
    made.player = Watching(lambda *_: 0)
    try_experiments(made)
    return made


def samples(bench: Bench) -> pl.DataFrame:
    """What was written to the run."""
    return bench.writer.finish("complete").samples


def test_each_region_is_left_out_beside_the_graph_it_is_left_out_of(
    bench: Bench,
) -> None:
    """Of an arm whose graph is its twin there is one; of the other there are two."""
    knock_out(bench, 1)
    found = samples(bench)
    assert set(found["phase"]) == {"knockout"}
    assert set(found["capture"]) == {1}
    times = found.select("arm", "experiment", pl.col("duration_ns") // pl.col("passes"))
    expected = pl.DataFrame(
        [
            ("fused", "captured", 100),
            ("fused", "serial", 110),
            ("fused", "serial, without moe", 70),
            ("fused", "without moe", 60),
            ("reference", "captured", 100),
            ("reference", "without moe", 60),
        ],
        schema=times.schema,
        orient="row",
    )
    assert_frame_equal(times.unique().sort("arm", "experiment"), expected)


def test_all_replays_of_a_round_run_one_step_after_a_whole_one(bench: Bench) -> None:
    """What a region that is left out would have written is then there."""
    replay = bench.longest("fused")
    assert isinstance(replay, fakes.ScriptedReplay)
    replay.seen.clear()
    knock_out(bench, 0)
    steps = samples(bench).group_by("arm", "round").agg(pl.col("step").n_unique())
    assert set(steps["step"]) == {1}
    fused = 6 * (1 + 4 * 2) + 1 + 2  # four graphs of two lengths; a check of two
    reference = 6 * (1 + 2 * 2) + 1 + 1
    assert len(replay.seen) == fused + reference


def test_a_knock_out_whose_results_are_others_afterwards_is_discarded(
    bench: Bench,
) -> None:
    """The run is kept, its trial says why, and nothing is left disabled."""
    assert isinstance(bench.workload, Answering)
    right, wrong = torch.ones(2), torch.zeros(2)
    bench.workload.given = [right, wrong]
    knock_out(bench, 0)
    found = {
        (trial.arm, trial.experiment.name): trial.outcome
        for trial in bench.writer.header.trials
    }
    assert found["reference", "without moe"] == "discarded"
    assert found["fused", "without moe"] == "measured"
    assert bench.experiments["reference"] == ()
    left = {key[:2] for key in bench.variants}
    assert ("reference", "without moe") not in left
    assert (
        not samples(bench).filter(arm="reference", experiment="without moe").is_empty()
    )


def test_a_twin_that_was_discarded_is_not_timed_beside_what_it_lacks(
    bench: Bench,
) -> None:
    """The captured graph still is."""
    bench.drop("fused", SERIAL)
    knock_out(bench, 0)
    names = samples(bench).filter(arm="fused")["experiment"].unique().sort()
    assert names.to_list() == ["captured", "serial, without moe", "without moe"]


def test_nothing_is_timed_where_no_region_may_be_left_out(
    tmp_path: Path, elsewhere: object
) -> None:
    """Twins alone have no rounds here."""
    del elsewhere
    made = editable_bench(experiments(fakes.study(), SERIAL), tmp_path / "run", "fused")
    try_experiments(made)
    knock_out(made, 0)
    assert samples(made).is_empty()
