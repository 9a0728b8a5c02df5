"""Layers of the kernels of traces."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyze.layer_finder import (
    NO_STEPS,
    NOT_TOLD,
    NOTHING_REPEATS,
    find_layers,
    look_for_layers,
)
from layerscope.analyze.trace_steps import StepBy
from tests.analyze.planted import Model, models, plain, rows


def stepped(*steps: list[str], **fields: object) -> pl.DataFrame:
    """Kernels of these steps, one after another."""
    numbers = [number for number, names in enumerate(steps) for _ in names]
    kernels = rows([name for names in steps for name in names], **fields)
    return kernels.with_columns(step=pl.Series(numbers, dtype=pl.Int64))


def planted(model: Model) -> list[int | None]:
    """The layer of each kernel of a step."""
    names, starts, end = model.kernels()
    layers: list[int | None] = [None] * len(names)
    for number, (begin, stop) in enumerate(
        zip(starts, [*starts[1:], end], strict=True)
    ):
        layers[begin:stop] = [number] * (stop - begin)
    return layers


@given(st.lists(models(), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_step_has_its_layers(steps: list[Model]) -> None:
    """Steps of different models, such as prefill and decode, are looked at apart."""
    found = find_layers(stepped(*(model.kernels()[0] for model in steps)))
    assert found["layer"].to_list() == [each for one in steps for each in planted(one)]
    outside = found.filter(pl.col("layer").is_null())
    assert outside["variant"].null_count() == outside["position"].null_count()
    assert outside["variant"].null_count() == outside.height


def test_variants_and_positions() -> None:
    """A first layer without residual is a variant of its own, as each kind is."""
    layers = [("full" if number % 2 else "sliding", "dense") for number in range(8)]
    found = find_layers(stepped(Model(layers).kernels()[0]))
    firsts = found.filter(pl.col("position") == 0).sort("layer")
    assert firsts["variant"].to_list() == ["C", "A", "B", "A", "B", "A", "B", "A"]
    second = found.filter(pl.col("layer") == 1)
    assert second["name"][0] == "fused_add_rms_norm"
    assert second["position"].to_list() == list(range(second.height))


def test_other_streams() -> None:
    """What runs beside the layers is of the layer during which it begins."""
    names, starts, end = plain(6).kernels()
    main = stepped(names)
    begins_ns = [1_100 * at + 10 for at in (0, starts[1], starts[3] + 2, end + 1)]
    side = stepped(["all_reduce"] * 4, start_ns=begins_ns, stream=9)
    both = pl.concat([main, side]).sort("start_ns", maintain_order=True)
    found = find_layers(both).filter(pl.col("stream") == 9)
    assert found["layer"].to_list() == [None, 1, 3, None]


def test_ranges_come_first() -> None:
    """Steps of which ranges told the layers keep these."""
    names, _, _ = plain(6).kernels()
    told = [0] * 10 + [1] * (len(names) - 10) + [None] * len(names)
    kernels = stepped(names, names).with_columns(layer=pl.Series(told, dtype=pl.Int64))
    found = find_layers(kernels)
    assert found["layer"].to_list() == told[: len(names)] + planted(plain(6))


def test_outside_of_steps() -> None:
    """Kernels in no step are in no layer."""
    kernels = stepped(plain(6).kernels()[0]).with_columns(step=pl.lit(None, pl.Int64))
    found = look_for_layers(kernels)
    assert found.kernels["layer"].null_count() == kernels.height
    assert (found.steps, found.reason) == (0, NO_STEPS)


def test_reason() -> None:
    """Steps without layers say why; nothing is guessed."""
    names = [f"kernel_{each}" for each in range(40)]
    found = look_for_layers(stepped(names, plain(6).kernels()[0]))
    assert (found.steps, found.reasons, found.reason) == (2, {NOTHING_REPEATS: 1}, "")
    assert look_for_layers(stepped(names)).reason == NOTHING_REPEATS


@pytest.mark.parametrize("by", StepBy)
@pytest.mark.parametrize(
    "period", [["norm", "up", "act", "down"], ["gemm_0", "gemm_1"]]
)
def test_what_only_repeats(by: StepBy, period: list[str]) -> None:
    """Without attention or ranges, what repeats in a step need not be a layer."""
    names = ["embed", *period * 20, "head"]
    kernels = stepped(names).with_columns(step_by=pl.lit(by.value))
    found = look_for_layers(kernels)
    assert found.kernels["layer"].null_count() == kernels.height
    told = by in {StepBy.RANGES, StepBy.GRAPHS}  # else, there are no steps, either
    assert (found.steps, found.reasons) == (int(told), {NOT_TOLD: int(told)})
    assert found.kernels["step"].null_count() == (0 if told else kernels.height)


@pytest.mark.parametrize("by", [StepBy.DEVICE, StepBy.STACKS])
def test_a_device_without_steps(by: StepBy) -> None:
    """Where layers alone could tell steps, a device without layers has none."""
    layered, other = plain(6).kernels()[0], [f"kernel_{each}" for each in range(40)]
    kernels = pl.concat(
        [stepped(layered), stepped(other, device=1)], how="vertical"
    ).with_columns(step_by=pl.lit(by.value), step_kind=pl.lit("unknown"))
    found = look_for_layers(kernels)
    assert (found.steps, found.reasons) == (1, {NOTHING_REPEATS: 0})
    for column in ("step", "step_kind"):
        on = found.kernels.group_by("device").agg(pl.col(column).null_count())
        assert dict(on.iter_rows()) == {0: 0, 1: len(other)}


def test_a_step_without_layers_among_others() -> None:
    """A step that lacks layers stays one where others on its device have some."""
    odd = [f"kernel_{each}" for each in range(40)]
    kernels = stepped(odd, plain(6).kernels()[0]).with_columns(
        step_by=pl.lit(StepBy.STACKS.value)
    )
    found = look_for_layers(kernels)
    assert (found.steps, found.reasons) == (2, {NOTHING_REPEATS: 1})


def test_no_kernels() -> None:
    """Nothing gives nothing, with all columns."""
    found = find_layers(stepped([]))
    assert found.columns[-3:] == ["layer", "variant", "position"]
