import polars as pl
from hypothesis import given
from polars.testing import assert_frame_equal

from layerscope.analyze.median_pass import whole_replays
from layerscope.analyze.shares import increments, pass_shares
from layerscope.analyze.stretches import stretches
from layerscope.passes import PASS_KEYS
from tests.analyze.replayed import REPLAYS, Kernel, frame

REPLAY: list[Kernel] = [
    (0, "attention", 0, 10),
    (1, "attention", 8, 12),  # its first 2 are hidden
    (1, "attention", 24, 6),  # after a gap of 4
    (1, "moe", 25, 3),  # wholly hidden
    (2, "moe", 30, 5),
    (1, "moe", 33, 7),  # passes alternate
    (3, "attention", 41, 9),
]


def test_stretches_of_regions() -> None:
    """A stretch goes on over a gap and ends where another region, or pass, owns."""
    found = stretches(whole_replays(frame(REPLAY)), ["pass_index", "region"])
    rows = [
        (0, "attention", 0, 10, 1, 0),
        (1, "attention", 10, 30, 2, 4),
        (2, "moe", 30, 35, 1, 0),
        (1, "moe", 35, 40, 1, 0),
        (3, "attention", 40, 50, 1, 1),
    ]
    names = ["pass_index", "region", "start_ns", "end_ns", "kernels", "gap_ns"]
    expected = pl.DataFrame(rows, schema=names, orient="row")
    assert_frame_equal(found.select(names), expected)


def test_stretches_of_passes() -> None:
    """A pass that alternates with another has several."""
    found = stretches(whole_replays(frame(REPLAY)), ["pass_index"])
    assert found.select("pass_index", "start_ns", "end_ns").rows() == [
        (0, 0, 10),
        (1, 10, 30),
        (2, 30, 35),
        (1, 35, 40),
        (3, 40, 50),
    ]


def test_nothing_is_owned_where_passes_are_left_out() -> None:
    """What another pass owned in between is a hole, not a part of its neighbours."""
    pictured = whole_replays(frame(REPLAY)).filter(pl.col("pass_index") == 1)
    found = stretches(pictured, ["pass_index"])
    assert found.select("start_ns", "end_ns").rows() == [(10, 30), (35, 40)]


@given(REPLAYS)
def test_stretches_add_up(replays: list[list[Kernel]]) -> None:
    """Lengths add up to increments and to shares; in a replay each begins at an end."""
    kernels = frame(
        *[sorted(replay, key=lambda kernel: kernel[2]) for replay in replays]
    )
    whole = whole_replays(kernels)
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    passes = stretches(whole, ["pass_index"])
    found = passes.group_by(PASS_KEYS).agg(increment_ns=length)
    expected = increments(kernels)
    joined = expected.join(found, on=PASS_KEYS, how="left").fill_null(0)
    assert joined["increment_ns"].equals(joined["increment_ns_right"])
    regions = stretches(whole, ["pass_index", "region"])
    shares = pass_shares(kernels).join(
        regions.group_by(*PASS_KEYS, "region").agg(found_ns=length),
        on=[*PASS_KEYS, "region"],
        how="left",
    )
    assert shares["share_ns"].equals(shares["found_ns"].fill_null(0))
    for frame_ in (passes, regions):
        lines = frame_.group_by("replay", maintain_order=True).agg("start_ns", "end_ns")
        for starts, ends in lines.select("start_ns", "end_ns").rows():
            assert starts[1:] == ends[:-1]
