"""fp8 weights in the order in which kernels take them apart."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from layerscope_standard.packing import packed, packed_once

BYTES = torch.arange(256)
NOT_A_NUMBER = (0x7F, 0xFF)


def values_of(bits: Tensor) -> Tensor:
    """These bytes as float8_e4m3fn."""
    return bits.to(torch.uint8).view(torch.float8_e4m3fn)


def widened(values: Tensor) -> Tensor:
    """The bits of four bfloat16 a word, as `widen` of code/product.cuh masks them."""
    words = values.view(torch.int32).long() & 0xFFFFFFFF
    first = words & 0x87F087F0
    second = (words << 4 & 0x80F080F0) | (words >> 4 & 0x07000700)
    halves = [pair >> shift & 0xFFFF for pair in (first, second) for shift in (0, 16)]
    return torch.stack(halves, -1).flatten(-2)


def unpacked(values: Tensor) -> Tensor:
    """The bytes that were packed."""
    wide = widened(values)
    return (wide >> 8 & 0x80) | (wide >> 4 & 0x7F)


def every_pair() -> Tensor:
    """Words whose first and third byte make all pairs, as second and fourth do.

    These share half a packed word. The second pairs stand in another order.

    Returns:
        int64 [65536, 4].
    """
    pairs = torch.cartesian_prod(BYTES, BYTES)
    return torch.stack((pairs, pairs.roll(12_345, 0).flip(1)), -1).flatten(1)


def test_every_byte_is_where_it_is_looked_for() -> None:
    """In each of the four places, and with every byte that shares its half."""
    bits = every_pair()
    assert all(len(bits[:, each].unique()) == 256 for each in range(4))
    found = widened(packed(values_of(bits)))
    assert torch.equal(found, (bits & 0x80) << 8 | (bits & 0x7F) << 4)


@pytest.mark.parametrize("place", range(4))
def test_what_is_found_is_the_value(place: int) -> None:
    """As bfloat16 and times 2^120, for subnormal values too; NaN has none."""
    finite = BYTES[[each not in NOT_A_NUMBER for each in range(256)]]
    bits = torch.full((len(finite), 4), 0xFF)
    bits[:, place] = finite
    halves = widened(packed(values_of(bits)))[:, place]
    found = (halves << 16).to(torch.int32).view(torch.float32).double() * 2.0**120
    assert torch.equal(found, values_of(finite).double())


@given(st.lists(st.integers(0, 255), min_size=4, max_size=64))
def test_no_bit_is_lost(drawn: list[int]) -> None:
    """Of any bytes, whatever stands beside them."""
    bits = torch.tensor(drawn[: len(drawn) // 4 * 4])
    assert torch.equal(unpacked(packed(values_of(bits))), bits)


def test_weights_of_experts_stay_what_they_are() -> None:
    """A stack of matrices is packed row by row, and itself left alone."""
    bits = torch.randint(256, (3, 5, 16), generator=torch.Generator().manual_seed(1))
    values = values_of(bits)
    made = packed(values)
    assert made.shape == values.shape
    assert made.dtype == values.dtype
    assert torch.equal(unpacked(made), bits)
    assert torch.equal(values.view(torch.uint8).long(), bits)


def test_a_weight_is_packed_once() -> None:
    """Whoever asks; another one with the same values is another weight."""
    values = values_of(BYTES)
    made, is_new = packed_once(values)
    assert is_new
    assert torch.equal(unpacked(made), BYTES)
    again, is_new = packed_once(values)
    assert again is made
    assert not is_new
    assert packed_once(values.clone())[0] is not made


def test_a_weight_that_was_written_to_is_packed_anew() -> None:
    """Nothing that is built later computes with the values of before."""
    values = values_of(BYTES)
    before, _ = packed_once(values)
    values.copy_(values_of(BYTES.flip(0)))
    made, is_new = packed_once(values)
    assert is_new
    assert torch.equal(unpacked(made), BYTES.flip(0))
    assert torch.equal(unpacked(before), BYTES)


def test_what_was_packed_goes_with_its_weight() -> None:
    """Nothing else keeps it."""
    values = values_of(BYTES)
    made = weakref.ref(packed_once(values)[0])
    gc.collect()
    assert made() is not None
    del values
    gc.collect()
    assert made() is None
