"""First and last kernels of layers."""

import numpy as np
import pytest

from layerscope.analyze.layer_edges import layer_bounds
from tests.analyze.planted import Model, line, plain


def bounds(names: list[str], at: str) -> tuple[list[int], int]:
    """Where layers begin and the last one ends, cut at each kernel called `at`."""
    cuts = np.flatnonzero(np.array(names) == at).astype(np.int64)
    starts, end = layer_bounds(line(names), cuts, 0, len(names))
    return starts.tolist(), end


@pytest.mark.parametrize("at", ["qkv", "rope", "core_full", "out", "silu", "down"])
def test_any_cut_gives_the_same_layers(at: str) -> None:
    """Layers begin with the input norm, wherever in them the cuts are."""
    names, starts, end = plain(6).kernels()
    assert bounds(names, at) == (starts, end)


def test_embedding_ends_like_a_layer() -> None:
    """An all-reduce before the first norm is of the embedding, not of the layer."""
    model = Model([("full", "dense")] * 6, ("embed", "all_reduce"), reduces=True)
    names, starts, end = model.kernels()
    assert bounds(names, "rope") == (starts, end)


def test_norm_after_layers() -> None:
    """Where layers end with a norm, they begin behind it, and so does the first."""
    layer = [
        "qkv",
        "core_full",
        "out",
        "layer_norm",
        "up",
        "gelu",
        "down",
        "layer_norm",
    ]
    names = ["embed", "layer_norm", "mask", *layer * 4, "pooler"]
    assert bounds(names, "core_full") == ([3, 11, 19, 27], 35)


def test_line_that_begins_within_a_layer() -> None:
    """The first layer is what there is of it; the others begin with their norm."""
    names, starts, end = plain(6).kernels()
    cut = starts[0] + 2
    shifted = [0, *(start - cut for start in starts[1:])]
    assert bounds(names[cut:], "core_full") == (shifted, end - cut)


def test_line_that_ends_within_a_layer() -> None:
    """The last layer is what there is of it."""
    names, starts, end = plain(6).kernels()
    assert bounds(names[: end - 2], "core_full") == (starts, end - 2)


def test_last_layer_like_no_other() -> None:
    """It ends where the final norm begins."""
    model = Model([*[("full", "dense")] * 5, ("full", "experts")])
    names, starts, end = model.kernels()
    assert bounds(names, "rope") == (starts, end)


def test_cuts_of_no_layers() -> None:
    """Cuts with little in common are a mistake of the caller."""
    names = [f"kernel_{each}" for each in range(2_000)]
    cuts = np.arange(0, 2_000, 2, dtype=np.int64)
    with pytest.raises(ValueError, match="few kinds"):
        layer_bounds(line(names), cuts, 0, 2_000)
