"""What docs/switches.md says of the records of its runs, beside the tables it shows."""

from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.bootstrap import estimate
from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.stamps import stamped_passes
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.switches import Mechanisms, mechanisms
from layerscope.analyze.verdicts import Verdict, floor_of, pair_rounds
from layerscope.experiment import CAPTURED
from layerscope.run import Run, load
from tests.recorded import MANY_ROWS

BACKENDS = Path(__file__).resolve().parents[2] / "fixtures" / "backends"
SHAPE = "qwen3-30b-a3b-tp8-rows6-bfloat16"
CODE = ("role", "name", "grid_x", "grid_y", "grid_z", "block_x", "registers")
AGAIN = "standard (A/A)"
FLOOR_NS, STAMPED_FLOOR_NS = 624, 1194


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
    assert round(after.pop("attention"), 1) == 5.9
    assert round(before.pop("down+sum"), 1) == 8.3
    assert round(after.pop("down+sum"), 1) == 8.4
    assert max(abs(after[role] - before[role]) for role in before) < 0.1


def test_the_second_build_is_slower_in_all_captures(run: Run) -> None:
    """Each capture has most of the difference, which makes the floor."""
    pairs = against_itself(run)
    assert round(estimate(pairs, "change_ns").value) == 425
    captures = pairs.group_by("capture").agg(pl.median("change_ns"))["change_ns"]
    assert sorted(captures) == [348, 456, 471]
    assert round(floor_of(pairs)) == FLOOR_NS


def test_the_run_with_stamps_has_a_higher_floor(stamped: Run) -> None:
    """Its second build is slower by more, and it is `attention` again."""
    pairs = against_itself(stamped)
    assert round(estimate(pairs, "change_ns").value) == 988
    assert round(floor_of(pairs)) == STAMPED_FLOOR_NS
    found = [durations_us(captured(stamped), arm) for arm in ("standard", AGAIN)]
    assert [round(each["attention"], 1) for each in found] == [5.6, 6.5]


def test_a_second_build_may_differ_by_little() -> None:
    """By 0.01 µs in the study of this shape without arms of switches."""
    found = estimate(against_itself(load(BACKENDS / SHAPE)), "change_ns")
    assert round(found.value) == 10
    assert found.low < 0 < found.high


def test_the_second_build_is_faster_with_weights_in_fp8() -> None:
    """It is `attention` once more, which is slower in the first build."""
    run = load(BACKENDS / "qwen3-30b-a3b-tp8-rows6-float8_e4m3")
    assert round(estimate(against_itself(run), "change_ns").value) == -1101
    found = [durations_us(captured(run), arm) for arm in ("standard", AGAIN)]
    assert [round(each["attention"], 1) for each in found] == [6.6, 5.6]


def test_of_two_backends_built_twice_one_differs_by_more_than_the_floor(
    apart: dict[str, Mechanisms], kernels: pl.DataFrame
) -> None:
    """By as much as the page says: one in `attention`, the other by little."""
    standard, mega = apart["standard"].builds, apart["nvidia_mega"].builds
    assert standard is not None
    assert mega is not None
    assert (round(standard.value), round(mega.value)) == (1093, 189)
    assert (round(mega.low / 1000, 2), round(mega.high / 1000, 2)) == (0.05, 0.31)
    assert mega.value < FLOOR_NS < standard.low
    assert [
        round(durations_us(kernels, f"standard:pdl=off{again}")["attention"], 2)
        for again in ("", " (built again)")
    ] == [5.41, 6.40]


def test_two_builds_differ_by_as_much_as_the_advice_says() -> None:
    """The most is in one draft, of all of up to 8 rows; in layers, in one in fp8."""
    found = {
        str(header.parent.relative_to(BACKENDS)): estimate(
            against_itself(load(header.parent)), "change_ns"
        ).value
        for header in BACKENDS.rglob("run.json")
        if not any(rows in str(header) for rows in MANY_ROWS)
    }
    assert len(found) == 26
    most = max(found, key=lambda study: abs(found[study]))
    assert most == "qwen3-30b-a3b-tp4-rows6-bfloat16/draft"
    assert round(found[most] / 1000, 1) == 1.3
    layers = {study: found[study] for study in found if not study.endswith("/draft")}
    most = max(layers, key=lambda study: abs(layers[study]))
    assert most == "qwen3-30b-a3b-tp8-rows6-float8_e4m3"
    assert round(layers[most] / 1000, 1) == -1.1


@pytest.mark.parametrize(
    ("arm", "attention_us"),
    [
        ("all off", 5.6),
        ("only weight_prefetch", 6.0),
        ("only early_experts", 6.1),
        ("only norm_in_product", 6.0),
        ("only kv_gather", 6.0),
    ],
)
def test_attention_is_slower_in_some_builds(
    kernels: pl.DataFrame, arm: str, attention_us: float
) -> None:
    """Of these switches only `kv_gather` changes that kernel."""
    found = durations_us(kernels, f"nvidia_mega {arm}")
    assert round(found["attention"], 1) == attention_us


def test_three_builds_have_more_of_attention_than_single_effects_add_up_to(
    apart: dict[str, Mechanisms], kernels: pl.DataFrame
) -> None:
    """By switches that leave that kernel alone: 1.5 µs, in a sum of 1.0."""
    off = durations_us(kernels, "nvidia_mega all off")["attention"]
    alone = ("weight_prefetch", "early_experts", "norm_in_product")
    more = [
        durations_us(kernels, f"nvidia_mega only {switch}")["attention"] - off
        for switch in alone
    ]
    assert round(sum(more), 1) == 1.5
    together = apart["nvidia_mega"].together
    assert together is not None
    assert round(together.one_by_one.value) == 951
    assert round(together.beyond.value / 1000, 1) == -9.8


@pytest.mark.parametrize(
    ("switch", "merged", "each_us", "others_us"),
    [
        ("rope_in_query", "rope_kv_write+attention", [2.3, 5.6, 5.5], 0.02),
        ("bitmap_routing", "top_k+align", [2.4, 1.7, 2.6], 0.08),
    ],
)
def test_a_fusion_saves_in_the_kernels_that_it_merges(
    kernels: pl.DataFrame,
    switch: str,
    merged: str,
    each_us: list[float],
    others_us: float,
) -> None:
    """Two become one, and no other kernel is faster by more than `others_us`."""
    off = durations_us(kernels, "nvidia_mega all off")
    only = durations_us(kernels, f"nvidia_mega only {switch}")
    before_us = [off.pop(role) for role in merged.split("+")]
    assert [round(us, 1) for us in (*before_us, only.pop(merged))] == each_us
    assert off.keys() == only.keys()
    assert round(max(off[role] - only[role] for role in off), 2) == others_us


@pytest.mark.parametrize(
    ("switch", "attention_us", "left_us"),
    [
        ("weight_prefetch", 0.48, 0.50),
        ("kv_gather", 0.45, 0.11),
        ("early_experts", 0.51, 0.10),
    ],
)
def test_attention_has_half_a_us_of_what_three_switches_cost_serially(
    apart: dict[str, Mechanisms],
    kernels: pl.DataFrame,
    switch: str,
    attention_us: float,
    left_us: float,
) -> None:
    """What is left of it, less what `attention` takes longer in the arm."""
    effects = {each.switch.name: each for each in apart["nvidia_mega"].effects}
    effect = effects[switch]
    assert effect.added.serial is not None
    off, on = (
        durations_us(kernels, arm)["attention"]
        for arm in (effect.added.off, effect.added.on)
    )
    assert round(on - off, 2) == attention_us
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
    told, verdicts = {}, {}
    for each in stamped_passes(stamped, floor_ns=STAMPED_FLOOR_NS):
        assert each.cost is not None
        cost_us = round(each.cost.difference.value / 1000, 1)
        told[each.arm] = (cost_us, round(100 * each.cost.relative, 1), each.tick_ns)
        verdicts[each.arm] = each.cost.verdict
    assert verdicts == {
        "standard": Verdict.SLOWER,
        "nvidia_mega": Verdict.NO_DIFFERENCE,
    }
    assert told == {"standard": (2.5, 6.0, 32), "nvidia_mega": (1.2, 3.6, 32)}


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
        "standard": 43.5,
        mega: 32.8,
    }
    assert {arm: round(us(arm, "work_ns", *experts), 1) for arm in passes} == {
        "standard": 18.2,
        mega: 15.7,
    }
    assert round(waits["standard"] - waits[mega], 1) == 4.6
    assert round(work["standard"] - work[mega], 1) == 6.1
    before = us("standard", "work_ns", "norm", "qkv", "rope_kv_write", "attention")
    after = us(mega, "work_ns", "norm+qkv", "rope_kv_write+attention")
    assert round(before - after, 1) == 2.5
    routing = us("standard", "work_ns", "top_k", "align")
    assert round(routing - us(mega, "work_ns", "top_k+align"), 1) == 0.5
    unmerged = set(passes[mega]["role"]) & set(passes["standard"]["role"])
    saved = {
        role: us("standard", "work_ns", role) - us(mega, "work_ns", role)
        for role in unmerged
    }
    assert {role: round(each, 1) for role, each in saved.items()} == {
        "down+sum": 2.3,
        "router": 0.5,
        "o_proj": 0.3,
        "post_norm": 0.3,
        "gate_up": 0.1,
        "combine": -0.5,
    }
