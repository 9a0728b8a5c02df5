"""The recorded studies of two fused backends: what every one of them must show."""

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from benchmarks.record_backends import studies
from layerscope.analyze.causes import Cause
from layerscope.analyze.launch_speeds import spans
from layerscope.analyze.stamps import stamped_kernels
from layerscope.analyze.verdicts import Verdict
from layerscope.report.fallbacks import ran_nothing
from layerscope.report.measures import Measures, measures
from layerscope.run import Run, load
from tests.recorded import BACKEND_SHAPES as STUDIES
from tests.recorded import MANY_ROWS

FOLDER = Path(__file__).parent.parent / "fixtures" / "backends"
CHAINS = ("standard", "standard:pdl=off", "nvidia_mega")
ALL = (*CHAINS, "torch_compile")
APART = ("standard", "nvidia_mega")
AGAIN = "standard (A/A)"
EACH_SWITCH = "tp8-rows6-bfloat16-each-switch"
STAMPS = "tp8-rows6-bfloat16-stamps"
LIMITED = (*STUDIES, EACH_SWITCH, STAMPS)
"""Those whose time had not ended before limits."""

DRAFTS = {
    "tp1-rows6-bfloat16": 1.1,
    "tp1-rows6-float8_e4m3": 1.1,
    "tp4-rows6-bfloat16": 1.7,
    "tp4-rows6-float8_e4m3": 1.7,
    "tp8-rows6-bfloat16": 1.7,
    "tp8-rows6-float8_e4m3": 1.7,
}
"""How many times as fast one launch is, at least."""


@cache
def recorded(name: str) -> Run:
    """A run by what follows the model's name."""
    return load(FOLDER / f"qwen3-30b-a3b-{name}")


@cache
def told(name: str) -> Measures:
    """What is reported of it."""
    return measures(recorded(name))


@pytest.fixture(scope="module")
def apart() -> Run:
    return recorded(EACH_SWITCH)


@pytest.fixture(scope="module")
def stamped() -> Run:
    return recorded(STAMPS)


@pytest.mark.parametrize(
    ("name", "arms"),
    [
        *((name, ALL) for name in (*STUDIES, MANY_ROWS[0])),
        (MANY_ROWS[1], CHAINS),
        *((name, APART) for name in (EACH_SWITCH, STAMPS)),
    ],
)
def test_every_arm_is_in_one_complete_study(name: str, arms: tuple[str, ...]) -> None:
    """The strong chain first, for the others are compared with it."""
    header = recorded(name).header
    assert header.status == "complete"
    assert tuple(arm.name for arm in header.study.arms) == arms
    assert header.environment.device.name == "NVIDIA H200"


@pytest.mark.parametrize("name", LIMITED)
def test_limits_were_measured(name: str) -> None:
    """All five bounds of the standard chain, and ten cold reads."""
    header = recorded(name).header
    assert [bound.name for bound in header.bounds if not bound.arm] == [
        *("no PDL", "stock PDL", "legal early start", "all early", "one read"),
    ]
    assert len(header.reads) == 10


@pytest.mark.parametrize("name", MANY_ROWS)
def test_limits_of_many_rows_were_not_reached(name: str) -> None:
    """Their passes are slow, and a warning says so."""
    header = recorded(name).header
    assert (header.bounds, header.reads) == ([], [])
    warned = "limits were not measured: the time budget had ended"
    assert warned in header.warnings


@pytest.mark.parametrize("name", [*LIMITED, MANY_ROWS[0]])
def test_everything_was_of_one_speed_of_launches(name: str) -> None:
    """Within 1 % of each other, whatever graphs were made, and of cold reads too."""
    run = recorded(name)
    costs = run.header.launch_costs
    limits = ("bounds", "reads") if name in LIMITED else ()
    assert tuple(spans(costs)) == ("anchor", "after", *limits)
    lowest, *_, highest = sorted(cost.kernel_ns for cost in costs)
    assert 710 < lowest < highest < 875
    assert highest < 1.01 * lowest
    if run.draft is not None:
        draft = spans(run.draft.header.launch_costs)
        assert tuple(draft) == ("anchor", "after")
        lows, highs = zip(*draft.values(), strict=True)
        assert max(highs) < 1.01 * min(lows)


def test_few_anchors_moved_by_more_than_captures_spread() -> None:
    """Where a report warns, it is of 0.5 µs at most."""
    runs = {name: recorded(name) for name in (*LIMITED, *MANY_ROWS)}
    drafts = {f"{name} draft": run.draft for name, run in runs.items() if run.draft}
    warned = {
        (name, arm): round(shift.value_ns)
        for name, run in (runs | drafts).items()
        for arm, shift in measures(run).shifts.items()
        if shift.excess_ns > 0
    }
    assert warned == {
        ("tp1-rows1-float8_e4m3", "standard:pdl=off"): -111,
        ("tp4-rows6-bfloat16", AGAIN): -163,
        ("tp4-rows8-bfloat16", AGAIN): -292,
        ("tp8-rows6-bfloat16 draft", "standard"): 472,
    }


@pytest.mark.parametrize(("name", "flags"), [*studies()])
def test_every_study_is_of_the_script_as_it_is(name: str, flags: list[str]) -> None:
    """Its command has the same arguments, time budget and all."""
    program, subcommand, *given, option, _ = load(FOLDER / name).header.command
    assert (program, subcommand, option) == ("layerscope", "profile", "-o")
    assert given == flags


@pytest.mark.parametrize("name", STUDIES)
def test_anchors_after_the_profiler_are_those_before(name: str) -> None:
    """Within 0.65 % of the layer, and 0.52 µs."""
    found = told(name)
    for arm, shift in found.shifts.items():
        assert abs(shift.value_ns) < min(520, 0.0065 * found.anchors[arm].value)


@pytest.mark.parametrize("name", STUDIES)
def test_the_ledger_closes(name: str) -> None:
    """The residual is below 3 % of the layer; overlap and merging are causes."""
    found = told(name).ledgers["nvidia_mega"]
    assert (found.base, found.unknown) == ("standard", "")
    assert abs(found.residual.value) < 0.03 * found.base_ns
    changes = {line.cause: line.change for line in found.lines}
    assert changes[Cause.OVERLAP].high < 0
    assert changes[Cause.MERGED].high < 0


@pytest.mark.parametrize("name", STUDIES)
def test_every_layer_of_up_to_eight_rows_is_faster(name: str) -> None:
    """Each arm ran all regions itself, in fewer kernels than the strong chain."""
    found = told(name)
    assert not ran_nothing(recorded(name).header)
    assert found.comparisons["nvidia_mega"].verdict is Verdict.FASTER
    assert found.comparisons["standard:pdl=off"].verdict is Verdict.SLOWER
    assert found.kernels["nvidia_mega"] < found.kernels["standard"] == 12


@pytest.mark.parametrize(("name", "times"), DRAFTS.items())
def test_the_draft_is_read_once(name: str, times: float) -> None:
    """In one launch, which is that many times as fast as a launch a token."""
    draft = recorded(name).draft
    assert draft is not None
    found = measures(draft)
    assert (found.kernels["nvidia_mega"], found.kernels["standard"]) == (1, 5)
    anchors = found.anchors
    assert anchors["standard"].low > times * anchors["nvidia_mega"].high


@pytest.mark.parametrize("name", MANY_ROWS)
def test_beyond_eight_rows_everything_falls_back(name: str) -> None:
    """All regions of both backends ran on the reference, so they do not differ."""
    run, found = recorded(name), told(name)
    regions = ("attention", "o_proj_all_reduce", "moe")
    assert {
        (each.arm, each.region, each.backend)
        for each in run.header.decisions
        if each.reason
    } == {(arm, region, "reference") for arm in CHAINS for region in regions}
    assert set(ran_nothing(run.header)) == {*CHAINS, "standard (A/A)"}
    verdicts = {arm: each.verdict for arm, each in found.comparisons.items()}
    compiled = verdicts.pop("torch_compile", None)
    assert compiled == (Verdict.FASTER if name == MANY_ROWS[0] else None)
    assert verdicts == dict.fromkeys(
        ("standard:pdl=off", "nvidia_mega", "standard (A/A)"), Verdict.NO_DIFFERENCE
    )


@pytest.mark.parametrize("arm", APART)
def test_every_kernel_has_stamps(stamped: Run, arm: str) -> None:
    """In each of eight readings, as many roles as the arm has kernels, in one order."""
    found = told(STAMPS)
    (one,) = (each for each in found.stamped if each.arm == arm)
    assert one.readings == 8
    assert one.kernels.height == found.kernels[arm]
    stamps = stamped.stamps.filter(pl.col("arm") == f"{arm} (stamps)")
    for _, reading in stamps.group_by("reading"):
        assert set(reading["role"]) == set(one.kernels["role"])
    kernels = stamped_kernels(stamps)
    orders = kernels.group_by("reading").agg(pl.col("role"))["role"].to_list()
    assert orders == [one.kernels["role"].to_list()] * 8


def test_hand_over_and_work_add_up_to_the_stamped_pass(stamped: Run) -> None:
    """From the first end of a wait to the last end of all, in whole ns."""
    keys = ["arm", "reading"]
    kernels = stamped_kernels(stamped.stamps)
    sums = kernels.group_by(keys).agg(sum_ns=pl.sum("handover_ns") + pl.sum("work_ns"))
    worked = stamped.stamps.filter(pl.col("ended_ns").is_not_null())
    waited = pl.col("waited_ns").fill_null(pl.col("begun_ns"))
    passes = worked.group_by(keys).agg(pass_ns=pl.max("ended_ns") - waited.min())
    both = sums.join(passes, on=keys, how="full", validate="1:1")
    assert both.height == 2 * 8
    assert both.filter(pl.col("sum_ns").ne_missing(pl.col("pass_ns"))).is_empty()


def test_stamps_show_that_kernels_start_before_those_ahead_end() -> None:
    """All of `nvidia_mega` but the first begin early; of `standard` none does."""
    early = {
        one.arm: one.kernels["early_ns"].drop_nulls().to_list()
        for one in told(STAMPS).stamped
    }
    assert len(early["nvidia_mega"]) == 8
    assert min(early["nvidia_mega"]) > 0
    assert len(early["standard"]) == 11
    assert max(early["standard"]) < 0


def test_roles_are_held_against_cold_reads(apart: Run) -> None:
    """TB/s of every kernel that must read something: 32.45 MB in gate_up's 10.6 µs."""
    measured = measures(apart, apart.header.reads)
    found = {
        "+".join(read.roles): read for read in measured.role_reads["standard"].reads
    }
    assert list(found) == [
        *("qkv", "attention", "o_proj", "router", "gate_up", "down+sum"),
    ]
    assert found["attention"].required_bytes == 8192 * 2 * 128 * 2
    assert found["qkv"].required_bytes == 768 * 2048 * 2
    gate_up = found["gate_up"]
    assert 2.9 < gate_up.required_bytes / gate_up.time_ns / 1e3 < 3.2  # TB/s
    assert gate_up.cold_read_ns < gate_up.time_ns


def test_switches_that_only_move_work_keep_every_bit(apart: Run) -> None:
    """As they claim, each alone and beside all others."""
    bits = {(check.switch, check.on): check.is_equal for check in apart.header.bits}
    equal = {switch for switch, _ in bits if switch not in _of(bits, is_equal=False)}
    assert equal >= {"early_trigger", "weight_prefetch", "kv_gather", "early_experts"}
    assert "rope_in_query" not in equal


def _of(bits: dict[tuple[str, str], bool], *, is_equal: bool) -> set[str]:
    return {switch for (switch, _), found in bits.items() if found == is_equal}
