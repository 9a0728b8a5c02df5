"""Possible cuts of lines of kernels."""

from collections import Counter

from layerscope.analyze.cut_lists import core_cuts, phrases, token_cuts
from tests.analyze.planted import FEEDS, MIXERS, line

LAYER = ["norm", *MIXERS["full"], "out", "norm", *FEEDS["dense"]]


def test_one_core_a_layer() -> None:
    """Each core is a cut."""
    names = LAYER * 4
    cuts = core_cuts(line(names)).tolist()
    assert [names[cut] for cut in cuts] == ["core_full"] * 4


def test_cores_that_share_the_work() -> None:
    """Of several in one layer the first is the cut."""
    linear = ["norm", *MIXERS["linear"], "out", "norm", *FEEDS["dense"]]
    mixed = ["norm", *MIXERS["mixed"], "out", "norm", *FEEDS["dense"]]
    for layer, first in ((linear, "core_conv"), (mixed, "core_prefill")):
        names = layer * 4
        assert [names[cut] for cut in core_cuts(line(names))] == [first] * 4


def test_cross_attention() -> None:
    """Without an MLP before it, the second attention is of the same layer."""
    cross = ["norm", "q", "core_full", "out"]
    names = ["norm", *MIXERS["full"], "out", *cross, "norm", *FEEDS["experts"]] * 4
    assert core_cuts(line(names)).size == 4


def test_short_layers_among_long_ones() -> None:
    """An MLP between two cores tells their layers apart, however near they are."""
    long = ["norm", "qkv", "core_full", "out", "norm", "silu", *["expert"] * 100]
    short = ["norm", "qkv", "core_full", "out", "norm", "silu"]
    assert core_cuts(line(short * 2 + long * 4)).size == 6


def test_token_cuts() -> None:
    """Where each kernel is, of those that are there often enough; most counts alike."""
    identity = line("xabcabcabca").identity
    lists = [cuts.tolist() for cuts in token_cuts(identity, most=1, fewest=3)]
    assert lists == [[2, 5, 8], [1, 4, 7, 10]]
    assert len(token_cuts(identity, most=8, fewest=3)) == 3


def test_phrases() -> None:
    """Equal numbers for equal kernels in a row, others for others."""
    numbers = phrases(line("abcabd").identity, 2).tolist()
    assert numbers[0] == numbers[3]
    assert sorted(Counter(numbers).values()) == [1, 1, 1, 2]
