"""What docs/switches.md says of the records of its runs, beside the tables it shows."""

from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.stamps import stamped_passes
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.switches import mechanisms
from layerscope.analyze.verdicts import floor_of, pair_rounds
from layerscope.experiment import CAPTURED
from layerscope.run import Run, load

BACKENDS = Path(__file__).resolve().parents[2] / "fixtures" / "backends"
SHAPE = "qwen3-30b-a3b-tp8-rows6-bfloat16"
CODE = ("role", "name", "grid_x", "grid_y", "grid_z", "block_x", "registers")
AGAIN = "standard (A/A)"


@pytest.fixture(scope="module")
def run() -> Run:
    """The study that tells switches apart."""
    return load(BACKENDS / f"{SHAPE}-each-switch")


@pytest.fixture(scope="module")
def kernels(run: Run) -> pl.DataFrame:
    """The kernels of the captured graphs, but those that stand before passes."""
    is_of_a_pass = pl.col("role").is_not_null()
    return run.kernels.filter(is_of_a_pass, experiment=CAPTURED)


@pytest.fixture(scope="module")
def stamped() -> Run:
    """The run with stamps."""
    return load(BACKENDS / f"{SHAPE}-stamps")


def durations_us(kernels: pl.DataFrame, arm: str) -> dict[str, float]:
    """Median duration by role."""
    found = kernels.filter(arm=arm).group_by("role").agg(pl.median("duration_ns"))
    return {role: duration_ns / 1000 for role, duration_ns in found.iter_rows()}


def against_itself(run: Run) -> pl.DataFrame:
    """The rounds of the A/A arm, paired with those of the first."""
    anchors = run.samples.filter(phase=ANCHOR, experiment=CAPTURED)
    return pair_rounds(pass_times(anchors), "standard", AGAIN)


def test_two_builds_of_the_same_kernels_differ_in_two_of_them(
    kernels: pl.DataFrame,
) -> None:
    """The A/A arm has the kernels of `standard`, and two of them take longer."""
    code = {
        arm: set(kernels.filter(arm=arm)[CODE].iter_rows())
        for arm in ("standard", AGAIN)
    }
    assert code["standard"] == code[AGAIN]
    before, after = durations_us(kernels, "standard"), durations_us(kernels, AGAIN)
    assert round(before.pop("attention"), 1) == 5.6
    assert round(after.pop("attention"), 1) == 6.1
    assert round(before.pop("down+sum"), 1) == 8.2
    assert round(after.pop("down+sum"), 1) == 8.4
    assert max(abs(after[role] - before[role]) for role in before) < 0.1


def test_the_second_build_is_slower_in_all_captures(run: Run) -> None:
    """Each capture has nearly the whole difference, which makes the floor."""
    pairs = against_itself(run)
    captures = pairs.group_by("capture").agg(pl.median("change_ns"))["change_ns"]
    assert captures.len() == 3
    assert captures.is_between(550, 850).all()
    assert round(floor_of(pairs)) == 850


def test_the_run_with_stamps_has_a_lower_floor(stamped: Run) -> None:
    """Its second build is not told from the first."""
    assert round(floor_of(against_itself(stamped))) == 177


def test_a_backend_built_twice_may_not_differ(run: Run) -> None:
    """By as much as the page says."""
    told = {each.backend: each for each in mechanisms(run, floor_ns=850)}
    builds = {name: each.builds for name, each in told.items()}
    assert {name: found and round(found.value) for name, found in builds.items()} == {
        "standard": -98,
        "nvidia_mega": 18,
    }


@pytest.mark.parametrize(
    ("arm", "attention_us"),
    [("all off", 5.6), ("only early_experts", 6.0), ("only kv_gather", 6.0)],
)
def test_attention_is_slower_in_some_builds(
    kernels: pl.DataFrame, arm: str, attention_us: float
) -> None:
    """Of these switches `early_experts` leaves that kernel alone."""
    found = durations_us(kernels, f"nvidia_mega {arm}")
    assert round(found["attention"], 1) == attention_us


def test_weight_prefetch_alone_does_not_slow_attention(kernels: pl.DataFrame) -> None:
    """What it costs without programmatic edges is of other kernels."""
    found = durations_us(kernels, "nvidia_mega only weight_prefetch")
    assert (
        found["attention"] < durations_us(kernels, "nvidia_mega all off")["attention"]
    )


def test_all_edges_are_programmatic_but_of_one_arm(run: Run) -> None:
    """The arm without programmatic launch has none, in both builds."""
    arms = [arm for each in mechanisms(run, floor_ns=850) for arm in each.arms]
    without = {arm.arm for arm in arms if arm.programmatic == 0}
    assert without == {"standard:pdl=off", "standard:pdl=off (built again)"}
    assert all(arm.programmatic == arm.edges for arm in arms if arm.arm not in without)


def test_what_stamps_cost_and_how_their_clock_moves(stamped: Run) -> None:
    """As the notes of the report have it."""
    told = {}
    for each in stamped_passes(stamped, floor_ns=177):
        assert each.cost is not None
        cost_us = round(each.cost.difference.value / 1000, 1)
        told[each.arm] = (cost_us, round(100 * each.cost.relative, 1), each.tick_ns)
    assert told == {"standard": (2.7, 6.4, 32), "nvidia_mega": (1.4, 4.2, 32)}


def test_what_hand_overs_and_work_add_up_to(stamped: Run) -> None:
    """The sums of the page that the tables do not have."""
    passes = {each.arm: each.kernels for each in stamped_passes(stamped, floor_ns=177)}

    def us(arm: str, column: str, *roles: str) -> float:
        chosen = pl.col("role").is_in(roles) if roles else pl.lit(value=True)
        return float(passes[arm].filter(chosen)[column].sum()) / 1000

    mega, experts = "nvidia_mega", ("gate_up", "down+sum")
    waits = {arm: us(arm, "handover_ns") for arm in passes}
    work = {arm: us(arm, "work_ns") for arm in passes}
    assert {arm: round(waits[arm] + work[arm], 1) for arm in passes} == {
        "standard": 43.8,
        mega: 33.0,
    }
    assert {arm: round(us(arm, "work_ns", *experts), 1) for arm in passes} == {
        "standard": 17.3,
        mega: 15.5,
    }
    assert round(waits["standard"] - waits[mega], 1) == 4.5
    assert round(work["standard"] - work[mega], 1) == 6.4
    before = us("standard", "work_ns", "norm", "qkv", "rope_kv_write", "attention")
    after = us(mega, "work_ns", "norm+qkv", "rope_kv_write+attention")
    assert round(before - after, 1) == 2.8
    routing = us("standard", "work_ns", "top_k", "align")
    assert round(routing - us(mega, "work_ns", "top_k+align"), 1) == 1.1
    down = us("standard", "work_ns", "down+sum") - us(mega, "work_ns", "down+sum")
    assert round(down, 1) == 1.8
