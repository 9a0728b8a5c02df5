from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.false_positives import false_positive_rate
from layerscope.analyze.shares import increments, pass_shares
from layerscope.analyze.statistics import (
    anchor,
    linearity,
    noise_floor,
    pass_times,
)
from layerscope.layers.spec import LayerSpec
from layerscope.run import Run, load

FIXTURES = Path(__file__).parent.parent / "fixtures"
RUNS = ("h200-qwen3-30b-a3b-tp1", "h200-qwen3-30b-a3b-tp4")
ARMS = ("reference", "reference (A/A)")


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / name)


def test_the_run_is_the_study_it_is_cited_for(run: Run) -> None:
    """Qwen3-30B-A3B, 6 rows of one request, 8K context, on one H200, by CUPTI."""
    spec = run.header.study.spec
    assert isinstance(spec, LayerSpec)
    assert run.header.status == "complete"
    assert run.header.environment.device.name == "NVIDIA H200"
    assert run.header.recorder == "cupti"
    assert (spec.model.name, spec.rows, spec.context) == ("qwen3-30b-a3b", 6, 8192)
    assert spec.shard_shaped == (spec.tp > 1)
    assert tuple(arm.name for arm in run.header.study.all_arms) == ARMS


def test_files_are_small_enough_to_keep(run: Run) -> None:
    """A whole run stays within 1 MB."""
    assert sum(file.stat().st_size for file in run.path.iterdir()) <= 1_000_000


def test_shares_add_up_to_increments_to_the_nanosecond(run: Run) -> None:
    """Every pass: the regions' shares are exactly what the frontier moved by."""
    keys = ["arm", "experiment", "capture", "replay", "pass_index"]
    shares = pass_shares(run.kernels).group_by(keys).agg(pl.col("share_ns").sum())
    moved = increments(run.kernels)
    both = moved.join(shares, on=keys, how="full", validate="1:1")
    assert both.height == moved.height
    assert both.filter(pl.col("increment_ns").ne_missing(pl.col("share_ns"))).is_empty()


def test_at_least_800_passes_of_every_arm_are_measured_and_recorded(run: Run) -> None:
    """The study's promise holds for anchors and for recorded passes."""
    anchors = run.samples.filter(phase="anchor").group_by("arm")
    timed = dict(anchors.agg(pl.col("passes").sum()).iter_rows())
    recorded = dict(increments(run.kernels).group_by("arm").len().iter_rows())
    assert set(timed) == set(recorded) == set(ARMS)
    assert min(timed.values()) >= 800
    assert min(recorded.values()) >= 800


def test_every_record_has_a_region_and_every_replay_the_same_nodes(run: Run) -> None:
    """All of a replay's nodes are there, in all replays, and none was dropped."""
    assert run.header.drops == []
    assert set(run.kernels["region"]) <= {*run.header.study.spec.regions, "other"}
    nodes = run.kernels.group_by("arm", "capture", "replay").agg(
        pl.col("node").sort().hash().sum(), pl.len().alias("count")
    )
    for _, replays in nodes.group_by("arm"):
        assert replays.select("node", "count").n_unique() == 1


def test_the_noise_floor_is_at_most_half_a_percent_of_the_layer(run: Run) -> None:
    """Two captures of the same arm agree that well."""
    times = pass_times(run.samples)
    assert noise_floor(times, *ARMS) <= 0.005 * anchor(times, ARMS[0]).value


def test_the_slope_over_three_lengths_is_linear_within_the_floor(run: Run) -> None:
    """The middle length lies on the line through the outer two."""
    floor_ns = noise_floor(pass_times(run.samples), *ARMS)
    bends = linearity(run.samples).filter(phase="anchor")["deviation_ns"]
    assert bends.len() == len(ARMS)
    assert bends.abs().to_numpy().max() <= floor_ns


def test_randomly_split_samples_of_equal_arms_rarely_differ(run: Run) -> None:
    """Of 200 A/A splits of the samples at most 5 % differ, by the interval alone."""
    times = pass_times(run.samples)
    found = false_positive_rate(times, *ARMS, unit="round", splits=200)
    assert found.splits == 200
    assert found.interval <= 0.05
    assert found.verdict <= found.interval


def test_split_captures_of_equal_arms_rarely_differ(run: Run) -> None:
    """Of all A/A splits of whole captures at most 5 % are called a difference.

    Eight captures have 127 splits. By the interval alone 10 % are let pass: all are of
    the same eight differences, so the share of one run strays from the 5 % that the
    interval promises over many runs.
    """
    found = false_positive_rate(pass_times(run.samples), *ARMS, splits=200)
    assert found.splits == 127
    assert found.verdict <= 0.05
    assert found.interval <= 0.10


def test_a_minute_and_a_small_host_are_enough(run: Run) -> None:
    """The study takes less than a minute, and its process less than 4 GB."""
    assert run.header.seconds["study"] < 60
    assert 0 < run.header.host_memory_bytes < 4e9
