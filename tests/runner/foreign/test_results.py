from dataclasses import dataclass
from math import inf, nan, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.runner.foreign.results import (
    Outcome,
    differences,
    distance,
    has_nan,
    is_changed,
    refuse_other_kinds,
    restore,
    saved,
    spoil,
    tensors_in,
)

FLOATS = st.lists(
    st.floats(-1e3, 1e3, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3),
    min_size=1,
    max_size=8,
).map(torch.tensor)
TYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
    *(torch.complex64, torch.int64, torch.uint8, torch.bool),
)


@dataclass
class Output:
    """What an arm may return."""

    hidden: Tensor
    extra: object = None


def found(got: Outcome, want: Outcome, *before: Tensor) -> list[tuple[str, float]]:
    """Names and errors of all differences."""
    names = [f"inputs[{index}]" for index in range(len(before))]
    return [(each.name, each.error) for each in differences(got, want, before, names)]


def test_tensors_are_found_wherever_they_are() -> None:
    """In tuples, dictionaries and dataclasses, in order; nothing else counts."""
    a, b, c, d = torch.arange(4).unbind()
    returned = [{"x": a, "y": (Output(b, {"z": c}), 3)}, None, "text", d, Output]
    assert tensors_in(returned) == [a, b, c, d]
    assert tensors_in(a) == [a]
    assert tensors_in(None) == []


@given(FLOATS, FLOATS)
def test_a_distance_is_that_of_the_norms(out: Tensor, ref: Tensor) -> None:
    """``|out - ref| / |ref|`` in double precision."""
    size = min(len(out), len(ref))
    out, ref = out[:size], ref[:size]
    wide, known = out.double(), ref.double()
    want = float((wide - known).norm() / known.norm())
    if wide.equal(known):
        want = 0.0
    assert distance(out, ref) == pytest.approx(min(inf, want))
    assert distance(ref, ref) == 0.0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type_can_be_compared(dtype: torch.dtype) -> None:
    """Integers must be equal; other types may be a little apart."""
    ref = torch.tensor([0.0, 1.0, 0.0, 2.0]).to(dtype)
    out = torch.tensor([0.0, 1.0, 2.0, 2.0]).to(dtype)
    is_exact = dtype in {torch.int64, torch.uint8, torch.bool}
    assert distance(ref, ref.clone()) == 0.0
    assert distance(out, ref) == (inf if is_exact else pytest.approx(2 / sqrt(5)))
    assert (is_changed(ref, ref.clone()), is_changed(out, ref)) == (False, True)


@pytest.mark.parametrize(
    ("out", "ref", "error"),
    [
        ([nan, 1.0], [0.0, 1.0], inf),
        ([inf, 1.0], [2.0, 1.0], inf),
        ([-inf, 1.0], [-inf, 2.0], 0.5),
        ([0.0, -0.0], [-0.0, 0.0], 0.0),
        ([0.0, 1.0], [0.0, 0.0], inf),
        ([nan], [nan], 0.0),
    ],
)
def test_values_that_are_no_numbers(
    out: list[float], ref: list[float], error: float
) -> None:
    """Infinities may stand where the reference has them, and nowhere else."""
    assert distance(torch.tensor(out), torch.tensor(ref)) == error


def test_nan_is_found_in_any_type() -> None:
    """Types without an isnan of their own too."""
    for dtype in TYPES:
        clean = torch.zeros(2).to(dtype)
        assert not has_nan(clean)
    assert has_nan(torch.tensor([0.0, nan]).to(torch.float8_e4m3fn))


def test_arguments_count_where_they_change() -> None:
    """One missing row of a large cache is an error of 1, not of one in a thousand."""
    before = torch.ones(1000, 4)
    want, got = before.clone(), before.clone()
    want[7] = 2.0
    nothing: list[Tensor] = []
    right = Outcome(nothing, [want])
    assert found(right, right, before) == [("inputs[0]", 0.0)]
    assert found(Outcome(nothing, [got]), right, before) == [("inputs[0]", 0.5)]
    got[7], got[9] = 2.0, 3.0
    ((_, error),) = found(Outcome(nothing, [got]), right, before)
    assert error == pytest.approx(sqrt(16 / (16 + 4)))


def test_what_the_reference_leaves_alone_is_scratch_memory() -> None:
    """An arm may write a workspace that it is given."""
    before = torch.zeros(2)
    got, want = Outcome([before], [torch.ones(2)]), Outcome([before], [before])
    assert found(got, want, before) == [("result 0", 0.0)]


def test_differences_are_told_in_words() -> None:
    """A number, or why there is none."""

    def told(out: Tensor, ref: Tensor) -> str:
        (only,) = differences(Outcome([out], []), Outcome([ref], []), [], [])
        return str(only)

    ones = torch.ones(2)
    assert told(ones * 1.5, ones) == "relative error 0.5 in result 0"
    assert told(ones * nan, ones) == "values that are not finite in result 0"
    assert told(ones.int() + 1, ones.int()) == "other integers in result 0"


def test_results_of_another_kind_are_refused() -> None:
    """Types and shapes of both are named."""
    half = Outcome([torch.zeros(2, 3).half()], [])
    refuse_other_kinds("fused", half, "base", half)
    with pytest.raises(BackendError) as caught:
        refuse_other_kinds("fused", Outcome([], []), "base", half)
    assert str(caught.value) == (
        "fused returns no tensor, base float16 [2, 3]; they must be of one kind"
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_results_are_spoilt_and_restored(dtype: torch.dtype) -> None:
    """Floats become NaN; integers 0, which is no index out of bounds."""
    tensor = torch.ones(2, 3).to(dtype)
    was = tensor.clone()
    before = saved(tensor)
    spoil(tensor)
    is_exact = dtype in {torch.int64, torch.uint8, torch.bool}
    assert has_nan(tensor) != is_exact
    assert is_changed(tensor, was)
    restore(tensor, before)
    assert not is_changed(tensor, was)


def test_any_result_can_be_spoilt() -> None:
    """Repeated elements, views, empty tensors, and results of inference mode."""
    with torch.inference_mode():
        made = torch.ones(3)
    row = torch.ones(3, 2)
    for tensor in (made, row[:, 1], torch.ones(1).expand(4), torch.zeros(0, 2)):
        spoil(tensor)
        assert bool(tensor.isnan().all())
