"""Whether cuts are one a layer."""

import numpy as np

from layerscope.analyze.cut_lists import core_cuts
from layerscope.analyze.stack_trials import Trial, trial
from tests.analyze.planted import Model, line, plain


def tried(names: list[str], at: str, *, cores: bool = True) -> Trial | None:
    """The trial of cuts at each kernel called `at`."""
    cuts = np.flatnonzero(np.array(names) == at).astype(np.int64)
    whole = line(names, cores=cores)
    return trial(whole, cuts, is_by_core=False, several=False)


def test_one_cut_a_layer() -> None:
    """What is once in each layer gives as many layers, and lists one of them."""
    names, starts, _ = plain(8).kernels()
    made = tried(names, "rope")
    assert made is not None
    assert (made.layers, made.irregular, made.begin) == (8, 0, starts[0] + 2)
    assert (made.length, made.cost) == (11.0, 11 + len(names) - 8 * 11)


def test_halves_of_layers() -> None:
    """What is twice in each layer is refused: attention and MLP are not alike."""
    names, _, _ = plain(8).kernels()
    assert tried(names, "fused_add_rms_norm") is None


def test_segments_without_core() -> None:
    """Where cores are known, segments that never hold one are refused."""
    names = ["copy", "fill"] * 100 + plain(8).kernels()[0]
    assert tried(names, "copy") is None
    assert tried(names, "copy", cores=False) is not None


def test_steps_are_no_layers() -> None:
    """A segment that holds many cores is refused."""
    names, _, _ = plain(8).kernels()
    assert tried(names * 6, "embed") is None
    assert tried(names * 6, "embed", cores=False) is not None


def test_cores_of_unlike_layers() -> None:
    """Cores may cut what is little alike, if it is more than half of nothing."""
    names, _, _ = Model([("full", "dense"), ("sliding", "experts")] * 3).kernels()
    whole = line(names)
    made = trial(whole, core_cuts(whole), is_by_core=True, several=False)
    assert made is not None
    assert made.layers == 6
