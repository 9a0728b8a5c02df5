"""What docs/switches.md says of the records of its runs, beside the tables it shows."""

from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.bootstrap import estimate
from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.stamps import stamped_passes
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.switches import Mechanisms, mechanisms
from layerscope.analyze.verdicts import floor_of, pair_rounds
from layerscope.experiment import CAPTURED
from layerscope.run import Run, load
from tests.recorded import MANY_ROWS

BACKENDS = Path(__file__).resolve().parents[2] / "fixtures" / "backends"
SHAPE = "qwen3-30b-a3b-tp8-rows6-bfloat16"
CODE = ("role", "name", "grid_x", "grid_y", "grid_z", "block_x", "registers")
AGAIN = "standard (A/A)"
FLOOR_NS, STAMPED_FLOOR_NS = 896, 1171


@pytest.fixture(scope="module")
def run() -> Run:
    """The study that tells switches apart."""
    return load(BACKENDS / f"{SHAPE}-each-switch")


@pytest.fixture(scope="module")
def apart(run: Run) -> dict[str, Mechanisms]:
    """What it says of the switches of each backend."""
    return {each.backend: each for each in mechanisms(run, floor_ns=FLOOR_NS)}


@pytest.fixture(scope="module")
def kernels(run: Run) -> pl.DataFrame:
    """The kernels of its captured graphs."""
    return captured(run)


@pytest.fixture(scope="module")
def stamped() -> Run:
    """The run with stamps."""
    return load(BACKENDS / f"{SHAPE}-stamps")


def captured(run: Run) -> pl.DataFrame:
    """The kernels of the captured graphs, but those that stand before passes."""
    is_of_a_pass = pl.col("role").is_not_null()
    return run.kernels.filter(is_of_a_pass, experiment=CAPTURED)


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
    assert round(after.pop("attention"), 1) == 6.0
    assert round(before.pop("down+sum"), 1) == 8.2
    assert round(after.pop("down+sum"), 1) == 8.4
    assert max(abs(after[role] - before[role]) for role in before) < 0.1


def test_the_second_build_is_slower_in_all_captures(run: Run) -> None:
    """Each capture has most of the difference, which makes the floor."""
    pairs = against_itself(run)
    assert round(estimate(pairs, "change_ns").value) == 570
    captures = pairs.group_by("capture").agg(pl.median("change_ns"))["change_ns"]
    assert captures.len() == 3
    assert captures.is_between(450, 700).all()
    assert round(floor_of(pairs)) == FLOOR_NS


def test_the_run_with_stamps_has_a_higher_floor(stamped: Run) -> None:
    """Its second build is slower by more, and it is `attention` again."""
    pairs = against_itself(stamped)
    assert round(estimate(pairs, "change_ns").value) == 1063
    assert round(floor_of(pairs)) == STAMPED_FLOOR_NS
    found = [durations_us(captured(stamped), arm) for arm in ("standard", AGAIN)]
    assert [round(each["attention"], 1) for each in found] == [5.6, 6.5]


def test_a_second_build_may_differ_by_little() -> None:
    """By 0.01 µs in the study of this shape without arms of switches."""
    pairs = against_itself(load(BACKENDS / SHAPE))
    assert round(estimate(pairs, "change_ns").value) == 13


def test_of_two_backends_built_twice_one_differs(
    apart: dict[str, Mechanisms], kernels: pl.DataFrame
) -> None:
    """By as much as the page says: one in `attention`, the other not told from zero."""
    standard, mega = apart["standard"].builds, apart["nvidia_mega"].builds
    assert standard is not None
    assert mega is not None
    assert (round(standard.value), round(mega.value)) == (887, 193)
    assert mega.low < 0 < mega.high
    assert [
        round(durations_us(kernels, f"standard:pdl=off{again}")["attention"], 1)
        for again in ("", " (built again)")
    ] == [5.5, 6.4]


def test_two_builds_differ_by_as_much_as_the_advice_says() -> None:
    """The most is in one study in fp8, of all of up to 8 rows and their drafts."""
    found = {
        str(header.parent.relative_to(BACKENDS)): estimate(
            against_itself(load(header.parent)), "change_ns"
        ).value
        for header in BACKENDS.rglob("run.json")
        if not any(rows in str(header) for rows in MANY_ROWS)
    }
    assert len(found) == 26
    most = max(found, key=lambda study: abs(found[study]))
    assert most == "qwen3-30b-a3b-tp8-rows6-float8_e4m3"
    assert round(found[most] / 1000, 1) == -1.4


@pytest.mark.parametrize(
    ("arm", "attention_us"),
    [
        ("all off", 5.6),
        ("only weight_prefetch", 6.1),
        ("only early_experts", 6.1),
        ("only norm_in_product", 6.1),
        ("only kv_gather", 6.1),
    ],
)
def test_attention_is_slower_in_some_builds(
    kernels: pl.DataFrame, arm: str, attention_us: float
) -> None:
    """Of these switches only `kv_gather` changes that kernel."""
    found = durations_us(kernels, f"nvidia_mega {arm}")
    assert round(found["attention"], 1) == attention_us


def test_three_builds_have_1_5_us_of_attention_in_the_sum(
    kernels: pl.DataFrame,
) -> None:
    """Of the single effects, by switches that leave that kernel alone."""
    off = durations_us(kernels, "nvidia_mega all off")["attention"]
    alone = ("weight_prefetch", "early_experts", "norm_in_product")
    more = [
        durations_us(kernels, f"nvidia_mega only {switch}")["attention"] - off
        for switch in alone
    ]
    assert round(sum(more), 1) == 1.5


@pytest.mark.parametrize(
    ("switch", "merged", "before_us", "after_us"),
    [
        ("rope_in_query", "rope_kv_write+attention", [2.3, 5.6], 5.6),
        ("bitmap_routing", "top_k+align", [2.4, 1.6], 2.6),
    ],
)
def test_a_fusion_saves_in_the_kernels_that_it_merges(
    kernels: pl.DataFrame,
    switch: str,
    merged: str,
    before_us: list[float],
    after_us: float,
) -> None:
    """No other kernel is faster by more than 0.05 µs."""
    off = durations_us(kernels, "nvidia_mega all off")
    only = durations_us(kernels, f"nvidia_mega only {switch}")
    assert [round(off.pop(role), 1) for role in merged.split("+")] == before_us
    assert round(only.pop(merged), 1) == after_us
    assert off.keys() == only.keys()
    assert max(off[role] - only[role] for role in off) < 0.05


@pytest.mark.parametrize(
    ("switch", "left_us"),
    [("weight_prefetch", 0.45), ("kv_gather", 0.27), ("early_experts", 0.02)],
)
def test_attention_has_half_a_us_of_what_three_switches_cost_serially(
    apart: dict[str, Mechanisms], kernels: pl.DataFrame, switch: str, left_us: float
) -> None:
    """What is left of it, less what `attention` takes longer in the arm."""
    effects = {each.switch.name: each for each in apart["nvidia_mega"].effects}
    effect = effects[switch]
    assert effect.added.serial is not None
    off, on = (
        durations_us(kernels, arm)["attention"]
        for arm in (effect.added.off, effect.added.on)
    )
    assert round(on - off, 1) == 0.5
    cost_us = effect.added.serial.difference.value / 1000
    assert round(cost_us - (on - off), 2) == left_us


def test_all_edges_are_programmatic_but_of_one_arm(
    apart: dict[str, Mechanisms],
) -> None:
    """The arm without programmatic launch has none, in both builds."""
    arms = [arm for each in apart.values() for arm in each.arms]
    without = {arm.arm for arm in arms if arm.programmatic == 0}
    assert without == {"standard:pdl=off", "standard:pdl=off (built again)"}
    assert all(arm.programmatic == arm.edges for arm in arms if arm.arm not in without)


def test_what_stamps_cost_and_how_their_clock_moves(stamped: Run) -> None:
    """As the notes of the report have it."""
    told = {}
    for each in stamped_passes(stamped, floor_ns=STAMPED_FLOOR_NS):
        assert each.cost is not None
        cost_us = round(each.cost.difference.value / 1000, 1)
        told[each.arm] = (cost_us, round(100 * each.cost.relative, 1), each.tick_ns)
    assert told == {"standard": (2.5, 6.2, 32), "nvidia_mega": (1.2, 3.7, 32)}


def test_what_hand_overs_and_work_add_up_to(stamped: Run) -> None:
    """The sums of the page that the tables do not have."""
    passes = {
        each.arm: each.kernels
        for each in stamped_passes(stamped, floor_ns=STAMPED_FLOOR_NS)
    }

    def us(arm: str, column: str, *roles: str) -> float:
        chosen = pl.col("role").is_in(roles) if roles else pl.lit(value=True)
        return float(passes[arm].filter(chosen)[column].sum()) / 1000

    mega, experts = "nvidia_mega", ("gate_up", "down+sum")
    waits = {arm: us(arm, "handover_ns") for arm in passes}
    work = {arm: us(arm, "work_ns") for arm in passes}
    assert {arm: round(waits[arm] + work[arm], 1) for arm in passes} == {
        "standard": 42.3,
        mega: 32.5,
    }
    assert {arm: round(us(arm, "work_ns", *experts), 1) for arm in passes} == {
        "standard": 16.7,
        mega: 15.3,
    }
    assert round(waits["standard"] - waits[mega], 1) == 4.7
    assert round(work["standard"] - work[mega], 1) == 5.1
    before = us("standard", "work_ns", "norm", "qkv", "rope_kv_write", "attention")
    after = us(mega, "work_ns", "norm+qkv", "rope_kv_write+attention")
    assert round(before - after, 1) == 2.6
    routing = us("standard", "work_ns", "top_k", "align")
    assert round(routing - us(mega, "work_ns", "top_k+align"), 1) == 0.6
    saved = {
        role: us("standard", "work_ns", role) - us(mega, "work_ns", role)
        for role in ("down+sum", "gate_up", "combine")
    }
    assert {role: round(each, 1) for role, each in saved.items()} == {
        "down+sum": 1.9,
        "gate_up": -0.6,
        "combine": -0.5,
    }
