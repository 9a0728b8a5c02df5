"""The recorded studies of two fused backends: what every one of them must show."""

from pathlib import Path

import pytest

from layerscope.analyze.causes import Cause
from layerscope.analyze.ledger import ledger
from layerscope.report.measures import measures
from layerscope.run import Run, load

FOLDER = Path(__file__).parent.parent / "fixtures" / "backends"
LAYERS = (
    "qwen3-30b-a3b-tp4-rows6-bfloat16",
    "qwen3-30b-a3b-tp8-rows6-bfloat16",
    "qwen3-30b-a3b-tp4-rows6-float8_e4m3",
)
EACH_SWITCH = "qwen3-30b-a3b-tp8-rows6-bfloat16-each-switch"


@pytest.fixture(scope="module", params=LAYERS)
def run(request: pytest.FixtureRequest) -> Run:
    name: str = request.param
    return load(FOLDER / name)


@pytest.fixture(scope="module")
def apart() -> Run:
    return load(FOLDER / EACH_SWITCH)


def test_every_arm_is_in_one_complete_study(run: Run) -> None:
    """The strong chain first, for the others are compared with it."""
    header = run.header
    assert header.status == "complete"
    assert [arm.name for arm in header.study.arms] == [
        "standard",
        "standard:pdl=off",
        "torch_compile",
        "nvidia_mega",
    ]
    assert header.environment.device.name == "NVIDIA H200"


def test_the_ledger_closes(run: Run) -> None:
    """The residual is below 3 % of the layer, and overlap is a cause of the change."""
    found = ledger(run, "standard", "nvidia_mega")
    assert not found.unknown
    assert abs(found.residual.value) < 0.03 * found.base_ns
    changes = {line.cause: line.change for line in found.lines}
    assert changes[Cause.OVERLAP].high < 0
    assert changes[Cause.MERGED].high < 0


def test_the_draft_is_read_once(run: Run) -> None:
    """In one launch that moves little more than it must, and is 1.7 times as fast."""
    assert run.draft is not None
    measured = measures(run.draft)
    assert measured.kernels["nvidia_mega"] == 1
    assert measured.kernels["standard"] == 5
    times = measured.anchors
    assert times["standard"].low > 1.7 * times["nvidia_mega"].high


def test_roles_are_held_against_cold_reads(apart: Run) -> None:
    """TB/s of every kernel that must read something: 32.45 MB in gate_up's 10.7 µs."""
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
