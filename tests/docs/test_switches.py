"""What docs/switches.md says of the records of its run, beside the tables it shows."""

from pathlib import Path

import polars as pl
import pytest

from layerscope.experiment import CAPTURED
from layerscope.run import load

NAME = "qwen3-30b-a3b-tp8-rows6-bfloat16-each-switch"
RUN = Path(__file__).resolve().parents[2] / "fixtures" / "backends" / NAME
CODE = ("role", "name", "grid_x", "grid_y", "grid_z", "block_x", "registers")


@pytest.fixture(scope="module")
def kernels() -> pl.DataFrame:
    """The kernels of the captured graphs, but those that stand before passes."""
    is_of_a_pass = pl.col("role").is_not_null()
    return load(RUN).kernels.filter(is_of_a_pass, experiment=CAPTURED)


def durations_us(kernels: pl.DataFrame, arm: str) -> dict[str, float]:
    """Median duration by role."""
    found = kernels.filter(arm=arm).group_by("role").agg(pl.median("duration_ns"))
    return {role: duration_ns / 1000 for role, duration_ns in found.iter_rows()}


def test_two_builds_of_the_same_kernels_differ_in_attention(
    kernels: pl.DataFrame,
) -> None:
    """`one_launch_draft` changes no kernel of a layer, and attention takes longer."""
    off, draft = "nvidia_mega all off", "nvidia_mega only one_launch_draft"
    code = {arm: set(kernels.filter(arm=arm)[CODE].iter_rows()) for arm in (off, draft)}
    assert code[off] == code[draft]
    before, after = durations_us(kernels, off), durations_us(kernels, draft)
    assert round(before.pop("attention"), 1) == 5.5
    assert round(after.pop("attention"), 1) == 6.4
    assert max(abs(after[role] - before[role]) for role in before) < 0.1


@pytest.mark.parametrize(
    ("switch", "attention_us"), [("weight_prefetch", 6.5), ("early_experts", 6.0)]
)
def test_attention_is_slower_in_builds_whose_switch_leaves_it_alone(
    kernels: pl.DataFrame, switch: str, attention_us: float
) -> None:
    """The same kernel takes longer than the 5.5 µs of all off."""
    found = durations_us(kernels, f"nvidia_mega only {switch}")
    assert round(found["attention"], 1) == attention_us
