import pytest
import torch
from torch.nn import functional

from layerscope.layers.weights import matrix, pick, quantise
from layerscope_torch_compile.products import (
    LOOP_ELEMENTS,
    LOOP_ROWS,
    Matrix,
    linear,
    matrix_of,
    picked,
    stored,
    values,
)


def test_values_of_blocks_are_the_dequantised_ones() -> None:
    """Every element gets the scale of its block, ragged last blocks included."""
    weight = quantise(torch.randn(3, 130, 257))
    assert torch.equal(values(matrix_of(weight)), weight.dequantise(torch.float32))


def test_plain_values_are_widened() -> None:
    """A weight without scales is itself in float32."""
    weight = torch.randn(5, 7, dtype=torch.bfloat16)
    assert torch.equal(values(matrix_of(weight)), weight.float())


def test_picked_values_are_those_of_the_picked_matrices() -> None:
    """Picking looks up data and scales of the same matrices, in the index's shape."""
    stack = torch.randn(4, 140, 130)
    index = torch.tensor([[3, 0, 3], [1, 2, 0]])
    for weight in (stack, quantise(stack)):
        expected = pick(weight, index.flatten(), torch.float32)
        found = picked(matrix_of(weight), index)
        assert torch.equal(found.flatten(0, 1), expected)


@pytest.mark.parametrize("rows", [1, LOOP_ROWS, LOOP_ROWS + 1])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_linear_is_the_product(
    rows: int,
    is_scaled: bool,  # noqa: FBT001 (a case)
) -> None:
    """With few rows and with many, plain and in blocks."""
    plain = torch.randn(140, 130)
    weight = quantise(plain) if is_scaled else plain
    hidden = torch.randn(rows, 130)
    expected = functional.linear(hidden, matrix(weight, torch.float32))
    torch.testing.assert_close(linear(hidden, matrix_of(weight)), expected)


@pytest.mark.parametrize("outputs", [LOOP_ELEMENTS // 256, LOOP_ELEMENTS // 256 + 1])
def test_linear_of_many_outputs_is_the_product(outputs: int) -> None:
    """With a scaled matrix that just fits the loop, and with one that does not."""
    weight, hidden = quantise(torch.randn(outputs, 256)), torch.randn(3, 256)
    expected = functional.linear(hidden, matrix(weight, torch.float32))
    product = linear(hidden, matrix_of(weight))
    torch.testing.assert_close(product, expected, rtol=1e-4, atol=1e-4)


def test_linear_accumulates_in_float32() -> None:
    """A sum of many small terms is not lost in bfloat16; the result is in its type."""
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    product = linear(ones, Matrix(ones, None))
    assert product.dtype is torch.bfloat16
    assert product.item() == 4096


def test_stored_changes_nothing() -> None:
    """What is written to memory has the same elements in the same places."""
    tensor = torch.randn(4, 6).t()
    assert torch.equal(stored(tensor), tensor)
