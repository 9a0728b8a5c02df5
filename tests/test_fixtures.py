from itertools import product
from math import comb
from operator import le
from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.false_positives import false_positive_rate
from layerscope.analyze.ledger import ledger
from layerscope.analyze.shares import increments, pass_shares, region_table
from layerscope.analyze.statistics import (
    Verdict,
    anchor,
    compare,
    linearity,
    noise_floor,
    paired,
    pass_times,
)
from layerscope.experiment import Experiment, usual
from layerscope.layers.draft_spec import draft_of
from layerscope.layers.spec import LayerSpec
from layerscope.run import Run, load
from layerscope.study import CallableSpec
from layerscope.trace_spec import TraceSpec
from tests.recorded import BACKEND_SHAPES, MANY_ROWS

FIXTURES = Path(__file__).parent.parent / "fixtures"
STEPS = {1: (1, 0), 6: (1, 5), 8: (2, 3)}
"""Requests and draft tokens of a step of so many rows."""

STUDIES = {
    f"{model}-tp{tp}-rows{rows}-{weights}": (model, tp, rows, weights)
    for model, tp, rows, weights in product(
        ("llama-3.1-8b", "qwen3-30b-a3b"),
        (1, 4),
        STEPS,
        ("bfloat16", "float8_e4m3"),
    )
}
EARLIER = ("h200-qwen3-30b-a3b-tp1", "h200-qwen3-30b-a3b-tp4")
WHOLE = ("qwen3-30b-a3b-tp1-rows6-bfloat16", "qwen3-30b-a3b-tp4-rows6-bfloat16")
"""The studies of the matrix that had the whole of the protocol, experiments too."""

WHOLE_LAYERS = (*EARLIER, *(f"h200/{name}" for name in WHOLE))
WHOLE_DRAFT = f"h200/{WHOLE[0]}/draft"
"""The draft that had it, in an earlier recording."""

FOREIGN = "h200/foreign-pair"
DRAFTS = tuple(f"h200/{name}/draft" for name in STUDIES if "rows1" not in name)
SELFTESTS = tuple(
    f"h200-selftest/{name}"
    for name in (
        *("trigger", "early", "branches", "merge", "less", "swap", "gap", "fewer"),
        *("bandwidth", "nothing", "mixtures"),
    )
)
TORCH_PROFILER = "h200-torch-profiler"
BACKENDS = tuple(
    f"backends/qwen3-30b-a3b-{name}"
    for name in (
        *BACKEND_SHAPES,
        *(f"{shape}/draft" for shape in BACKEND_SHAPES if "rows6" in shape),
        *MANY_ROWS,
        *("tp8-rows6-bfloat16-each-switch", "tp8-rows6-bfloat16-stamps"),
    )
)
"""Studies of two fused backends; see test_backend_fixtures."""

CHAINS = ("standard", "standard:pdl=off", "nvidia_mega")
APART = tuple(
    f"backends/qwen3-30b-a3b-tp8-rows6-bfloat16-{name}"
    for name in ("each-switch", "stamps")
)
"""Those that compare two arms, and have others for switches or for stamps."""

RUNS = (*EARLIER, *(f"h200/{name}" for name in STUDIES), *DRAFTS, FOREIGN)
ARMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(RUNS, ("reference", "torch_compile", "reference (A/A)")),
    **dict.fromkeys(EARLIER, ("reference", "reference (A/A)")),
    FOREIGN: ("transformers", "merged_mlp", "transformers (A/A)"),
    **dict.fromkeys(BACKENDS, (*CHAINS, "torch_compile", "standard (A/A)")),
    f"backends/qwen3-30b-a3b-{MANY_ROWS[-1]}": (*CHAINS, "standard (A/A)"),
    **dict.fromkeys(APART, ("standard", "nvidia_mega", "standard (A/A)")),
}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / name)


@pytest.fixture(scope="module", params=(*RUNS, *BACKENDS))
def recorded(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / name)


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / "h200" / name)


@pytest.fixture(scope="module", params=(*WHOLE_LAYERS, WHOLE_DRAFT))
def whole(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / name)


@pytest.fixture(scope="module", params=WHOLE_LAYERS)
def whole_layer(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FIXTURES / name)


def arms_of(run: Run) -> tuple[str, ...]:
    """Names of the arms, the A/A arm last."""
    return tuple(arm.name for arm in run.header.study.all_arms)


def built_arms(run: Run) -> list[str]:
    """Names of those that were timed: for switches and stamps too, the A/A arm last."""
    study = run.header.study
    return [arm.name for arm in (*study.built_arms, study.all_arms[-1])]


def base_and_again(run: Run) -> tuple[str, str]:
    """The first arm, and the same one captured again."""
    base, *_, again = arms_of(run)
    return base, again


def kernels_a_pass(run: Run) -> dict[tuple[str, str], float]:
    """Kernels by arm and region."""
    table = region_table(pass_shares(run.kernels))
    return {
        (arm, region): count
        for arm, region, count in table.select("arm", "region", "kernels").iter_rows()
    }


def test_the_runs_are_all_there_and_no_others() -> None:
    """Both earlier runs, the matrix with its drafts, and what is named above."""
    found = {
        path.parent.relative_to(FIXTURES).as_posix()
        for path in FIXTURES.rglob("run.json")
    }
    assert len(STUDIES) == 24
    assert found == {*RUNS, *SELFTESTS, TORCH_PROFILER, *BACKENDS}


def test_a_run_is_complete_of_an_h200_by_cupti(recorded: Run) -> None:
    """It was recorded to its end, with its arms, all of them right."""
    header = recorded.header
    name = recorded.path.relative_to(FIXTURES).as_posix()
    assert header.status == "complete"
    assert header.environment.device.name == "NVIDIA H200"
    assert header.environment.packages["torch"] == "2.11.0"
    assert header.recorder == "cupti"
    assert arms_of(recorded) == ARMS[name]
    assert [check.arm for check in header.numerics] == built_arms(recorded)
    assert all(check.passes for check in header.numerics)


def test_a_study_is_of_the_layer_that_its_folder_names(study: Run) -> None:
    """Model, slice, rows and weights are those of the name; so is its draft."""
    model, tp, rows, weights = STUDIES[study.path.name]
    spec = study.header.study.spec
    assert isinstance(spec, LayerSpec)
    assert (spec.model.name, spec.tp, spec.shard_shaped) == (model, tp, tp > 1)
    assert (spec.requests, spec.draft_tokens) == STEPS[rows]
    assert (spec.rows, spec.context) == (rows, 8192)
    assert (str(spec.dtype), str(spec.weight_dtype)) == ("bfloat16", weights)
    assert study.header.study.draft == draft_of(spec)
    assert (study.draft is None) == (rows == 1)
    if study.draft is not None:
        assert study.draft.header.study.spec == draft_of(spec)


def test_two_studies_had_the_whole_protocol_and_the_others_a_part(study: Run) -> None:
    """Captures, samples and seconds of the plan are those that the docs give."""
    plan = study.header.study
    is_whole = study.path.name in WHOLE
    assert (plan.captures, plan.samples, plan.time_budget_s) == (
        (8, 800, 80) if is_whole else (5, 250, 20)
    )
    assert bool(plan.experiments) == is_whole


@pytest.mark.parametrize("name", WHOLE)
def test_experiments_were_made_and_leave_little_unexplained(name: str) -> None:
    """None was refused or discarded, and the residual is below 3 % of the layer."""
    run = load(FIXTURES / "h200" / name)
    outcomes = {trial.outcome for trial in run.header.trials}
    assert outcomes <= {"measured", "same"}
    asked = {(trial.arm, trial.experiment) for trial in run.header.trials}
    assert asked == set(product(("reference", "torch_compile"), usual_experiments(run)))
    found = ledger(run, "reference", "torch_compile")
    assert (found.unknown, found.basis) == ("", "experiments")
    assert abs(found.residual.value) < 0.03 * found.base_ns


def planned_regions(run: Run) -> tuple[str, ...]:
    """Those of the layer, the draft or the callables that were measured."""
    spec = run.header.study.spec
    assert not isinstance(spec, TraceSpec)
    return tuple(spec.regions)


def usual_experiments(run: Run) -> tuple[Experiment, ...]:
    """The twin, and every region left out of it and of the captured graph."""
    return usual(planned_regions(run))


@pytest.mark.parametrize("name", WHOLE)
def test_every_edge_leads_from_a_node_to_a_later_one(name: str) -> None:
    """The graphs are chains: as many edges as nodes but one, the last to the last."""
    run = load(FIXTURES / "h200" / name)
    nodes = run.kernels.group_by("arm").agg(pl.col("node").max().alias("last"))
    edges = run.edges.group_by("arm").agg(pl.len(), pl.col("target").max())
    assert run.edges.filter(pl.col("source") >= pl.col("target")).is_empty()
    both = nodes.join(edges, on="arm", how="full", validate="1:1")
    assert both.height == 3
    assert both.filter(pl.col("last") != pl.col("target")).is_empty()
    assert both.filter(pl.col("last") != pl.col("len")).is_empty()


def test_the_compiled_layer_has_fewer_kernels(study: Run) -> None:
    """torch_compile fuses: a layer has fewer kernels, and no region has more."""
    counts = kernels_a_pass(study)
    regions = planned_regions(study)
    assert {region for _, region in counts} == set(regions)
    compiled, reference = (
        [counts[arm, region] for region in regions]
        for arm in ("torch_compile", "reference")
    )
    assert sum(compiled) < sum(reference)
    assert all(map(le, compiled, reference))


def test_the_compiled_layer_and_draft_are_faster_than_unfused_torch(study: Run) -> None:
    """The verdict that the README's tables show holds for every one of them."""
    for run in filter(None, (study, study.draft)):
        times = pass_times(run.samples)
        floor_ns = noise_floor(times, *base_and_again(run))
        found = compare(times, "reference", "torch_compile", floor_ns)
        assert found.verdict is Verdict.FASTER


def test_the_foreign_pair_has_regions_from_names_of_modules() -> None:
    """One product less in the MLP, all else the same, and no difference in time."""
    run = load(FIXTURES / FOREIGN)
    spec = run.header.study.spec
    assert isinstance(spec, CallableSpec)
    assert spec.regions == {"attention": ["layer.self_attn"], "mlp": ["layer.mlp"]}
    assert kernels_a_pass(run) == {
        ("transformers", "attention"): 20,
        ("transformers", "mlp"): 6,
        ("transformers", "other"): 18,
        ("merged_mlp", "attention"): 20,
        ("merged_mlp", "mlp"): 5,
        ("merged_mlp", "other"): 18,
        ("transformers (A/A)", "attention"): 20,
        ("transformers (A/A)", "mlp"): 6,
        ("transformers (A/A)", "other"): 18,
    }
    times = pass_times(run.samples)
    floor_ns = noise_floor(times, *base_and_again(run))
    found = compare(times, "transformers", "merged_mlp", floor_ns)
    assert found.verdict is Verdict.NO_DIFFERENCE


def test_the_whole_runs_are_the_study_they_are_cited_for(whole_layer: Run) -> None:
    """Qwen3-30B-A3B, 6 rows of one request, 8K context, by the default protocol."""
    spec = whole_layer.header.study.spec
    assert isinstance(spec, LayerSpec)
    assert (spec.model.name, spec.rows, spec.context) == ("qwen3-30b-a3b", 6, 8192)
    assert spec.shard_shaped == (spec.tp > 1)


def test_files_are_small_enough_to_keep(recorded: Run) -> None:
    """A whole run stays within 1 MB; that of a draft is one of its own."""
    files = [path for path in recorded.path.iterdir() if path.is_file()]
    assert sum(file.stat().st_size for file in files) <= 1_000_000


def test_shares_add_up_to_increments_to_the_nanosecond(recorded: Run) -> None:
    """Every pass: the regions' shares are exactly what the frontier moved by."""
    keys = ["arm", "experiment", "capture", "replay", "pass_index"]
    shares = pass_shares(recorded.kernels).group_by(keys).agg(pl.col("share_ns").sum())
    moved = increments(recorded.kernels)
    both = moved.join(shares, on=keys, how="full", validate="1:1")
    assert both.height == moved.height > 0
    assert both.filter(pl.col("increment_ns").ne_missing(pl.col("share_ns"))).is_empty()


def test_at_least_800_passes_of_every_arm_are_measured_and_recorded(whole: Run) -> None:
    """The study's promise holds for anchors and for recorded passes."""
    anchors = whole.samples.filter(phase="anchor").group_by("arm")
    timed = dict(anchors.agg(pl.col("passes").sum()).iter_rows())
    recorded = dict(increments(whole.kernels).group_by("arm").len().iter_rows())
    assert set(timed) == set(recorded) == set(arms_of(whole))
    assert min(timed.values()) >= 800
    assert min(recorded.values()) >= 800


def test_every_record_has_a_region_and_every_replay_the_same_nodes(
    recorded: Run,
) -> None:
    """All of a replay's nodes are there, in all replays, and none was dropped."""
    assert recorded.header.drops == []
    assert set(recorded.kernels["region"]) == {*planned_regions(recorded), "other"}
    nodes = recorded.kernels.group_by("arm", "capture", "replay").agg(
        pl.col("node").sort().hash().sum(), pl.len().alias("count")
    )
    assert set(nodes["arm"]) == set(built_arms(recorded))
    for _, replays in nodes.group_by("arm"):
        assert replays.select("node", "count").n_unique() == 1


def test_the_noise_floor_is_at_most_half_a_percent_of_the_layer(
    whole_layer: Run,
) -> None:
    """Two captures of the same arm agree that well."""
    times = pass_times(whole_layer.samples)
    base, again = base_and_again(whole_layer)
    assert noise_floor(times, base, again) <= 0.005 * anchor(times, base).value


def test_the_slope_over_three_lengths_is_linear_within_the_floor(run: Run) -> None:
    """The middle length lies on the line through the outer two."""
    floor_ns = noise_floor(pass_times(run.samples), *base_and_again(run))
    bends = linearity(run.samples).filter(phase="anchor")["deviation_ns"]
    edited = {
        (trial.arm, trial.experiment.name)
        for trial in run.header.trials
        if trial.outcome == "measured" and not trial.experiment.without
    }
    assert bends.len() == len(arms_of(run)) + len(edited)
    assert bends.abs().to_numpy().max() <= floor_ns


def test_an_arm_does_not_differ_from_itself(recorded: Run) -> None:
    """There were captures enough for a verdict, and it is none."""
    times = pass_times(recorded.samples)
    base, again = base_and_again(recorded)
    found = compare(times, base, again, noise_floor(times, base, again))
    assert found.verdict is Verdict.NO_DIFFERENCE


def test_intervals_of_an_arm_and_itself_include_zero_as_often_as_they_say() -> None:
    """The 95 % interval of the A/A difference excludes zero in about 5 % of runs.

    So many or more would be seen in more than one of twenty such sets of runs, were it
    5 % exactly. At most 5 % of the runs seen is no test of that: half of all sets would
    fail it. In the studies of backends the A/A arm is another build, so that its
    interval is of other things too; they are not among these.
    """
    excluded = 0
    for name in RUNS:
        run = load(FIXTURES / name)
        found = paired(pass_times(run.samples), *base_and_again(run))
        excluded += not found.low <= 0 <= found.high
    assert at_least(excluded, len(RUNS), 0.05) > 0.05


def at_least(successes: int, trials: int, probability: float) -> float:
    """How probable so many successes, or more, are among `trials` (binomial)."""
    return sum(
        comb(trials, count) * probability**count * (1 - probability) ** (trials - count)
        for count in range(successes, trials + 1)
    )


def test_no_split_of_captures_of_an_arm_and_itself_is_called_different(
    recorded: Run,
) -> None:
    """All A/A splits of whole captures are `no difference`, however few captures."""
    times = pass_times(recorded.samples)
    found = false_positive_rate(times, *base_and_again(recorded), splits=200)
    captures = times.filter(phase="anchor")["capture"].n_unique()
    assert captures >= 3
    assert found.splits == 2 ** (captures - 1) - 1
    assert found.verdict == 0


def test_randomly_split_samples_of_equal_arms_rarely_differ(whole: Run) -> None:
    """Of 200 A/A splits of the samples at most 5 % differ, by the interval alone."""
    times = pass_times(whole.samples)
    arms = base_and_again(whole)
    found = false_positive_rate(times, *arms, unit="round", splits=200)
    assert found.splits == 200
    assert found.interval <= 0.05
    assert found.verdict <= found.interval


def test_split_captures_of_equal_arms_rarely_differ(whole: Run) -> None:
    """Of all A/A splits of whole captures at most 5 % are called a difference.

    Eight captures have 127 splits. By the interval alone 10 % are let pass: all are of
    the same eight differences, so the share of one run strays from the 5 % that the
    interval promises over many runs.
    """
    times = pass_times(whole.samples)
    found = false_positive_rate(times, *base_and_again(whole), splits=200)
    assert found.splits == 127
    assert found.verdict <= 0.05
    assert found.interval <= 0.10


def test_a_minute_and_a_small_host_are_enough(recorded: Run) -> None:
    """The device is measured on for less than a minute, the process has under 4 GB.

    Making the arms, also once more in the process that tries edited graphs, is on top.
    """
    phases = dict(recorded.header.phases)
    phases.pop("trying experiments", None)
    assert (sum(phases.values()) or recorded.header.seconds["study"]) < 60
    assert 0 < recorded.header.host_memory_bytes < 4e9
