"""Layers of which a trace, or a step, holds only a part."""

import numpy as np
import polars as pl
import pytest

from layerscope.analyze.cut_layers import drop_cut
from layerscope.analyze.kernel_line import kernel_arrays
from layerscope.analyze.layer_finder import look_for_layers
from tests.analyze.planted import rows

LAYER = [
    *("fused_add_rms_norm", "qkv", "rope", "core_full", "o_proj"),
    *("fused_add_rms_norm", "gate_up", "silu", "down", "all_reduce"),
]
SHORT = ["fused_add_rms_norm", "qkv", "core_full", "o_proj", "down", "all_reduce"]


def dropped(*pieces: list[str], side: tuple[int, ...] = ()) -> tuple[list[int], int]:
    """`drop_cut` of kernels of these pieces; an empty name is outside of layers.

    `side` are the layers during which one kernel each begins on another stream.
    """
    names, layers = [], []
    number = 0
    for piece in pieces:
        is_in = "" not in piece
        names += piece
        layers += [number if is_in else -1] * len(piece)
        number += is_in
    main = rows(names, step=0)
    beside = rows(["copy"] * len(side), step=0, stream=9)
    arrays = kernel_arrays(
        pl.concat([main, beside]).with_columns(step=pl.lit(0, pl.Int64))
    )
    every = np.arange(len(names) + len(side))
    found, cut = drop_cut(arrays, every, np.array([*layers, *side], dtype=np.int64))
    return found.tolist(), cut


def numbered(*sizes: tuple[int, int]) -> list[int]:
    """(layer, kernels) pairs as a layer a kernel."""
    return [layer for layer, kernels in sizes for _ in range(kernels)]


def test_both_ends() -> None:
    """What is left of layers at both ends is in none; the others are from 0 again."""
    found = dropped(LAYER[4:], LAYER, LAYER, LAYER[:5])
    assert found == (numbered((-1, 6), (0, 10), (1, 10), (-1, 5)), 2)


def test_one_end() -> None:
    """Each end is looked at by itself."""
    assert dropped(LAYER[4:], LAYER, LAYER) == (
        numbered((-1, 6), (0, 10), (1, 10)),
        1,
    )
    assert dropped(LAYER, LAYER, LAYER[:5]) == (
        numbered((0, 10), (1, 10), (-1, 5)),
        1,
    )


def test_other_streams_follow() -> None:
    """What runs beside a layer that is cut is in no layer either."""
    found, cut = dropped(LAYER[4:], LAYER, LAYER[:5], side=(0, 1, 2))
    assert (found[-3:], cut) == ([-1, 0, -1], 2)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([LAYER[1:], LAYER, LAYER, LAYER[:-1]], id="lacks-a-kernel"),
        pytest.param([[""], LAYER[4:], LAYER, LAYER, LAYER[:5], [""]], id="not-an-end"),
        pytest.param([SHORT, LAYER, LAYER, SHORT], id="another-kind"),
        pytest.param([LAYER[4:], LAYER], id="nothing-usual"),
    ],
)
def test_whole_layers(pieces: list[list[str]]) -> None:
    """Layers that are whole stay, also those of odd kinds, first or last."""
    found, cut = dropped(*pieces)
    whole = [piece for piece in pieces if piece != [""]]
    assert [each for each in found if each >= 0] == numbered(
        *((number, len(piece)) for number, piece in enumerate(whole))
    )
    assert cut == 0


def test_the_finder_tells() -> None:
    """Steps that begin or end within a layer are told, with how many are cut."""
    steps = [["embed", *LAYER * 4, "head"], LAYER[2:] + LAYER * 4 + LAYER[:5]]
    names = [name for step in steps for name in step]
    numbers = [number for number, step in enumerate(steps) for _ in step]
    kernels = rows(names).with_columns(step=pl.Series(numbers, dtype=pl.Int64))
    found = look_for_layers(kernels)
    assert found.cut == {(0, 1): 2}
    layers = found.kernels["layer"].fill_null(-1).to_list()
    whole = numbered((0, 10), (1, 10), (2, 10), (3, 10))
    assert layers == [-1, *whole, -1, *[-1] * 8, *whole, *[-1] * 5]
