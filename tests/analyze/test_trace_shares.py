import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.trace_shares import (
    device_totals,
    layer_medians,
    region_shares,
    step_parts,
    step_shares,
    swept_kernels,
)
from tests.analyze.placed_kernels import Row, kernel, placed


def layer(
    start_ns: int, step: int, index: int, *kernels: tuple[str, int, int], **fields: str
) -> list[Row]:
    """Kernels (region, offset, duration) of one layer."""
    return [
        kernel(
            start_ns + offset,
            duration,
            region=region,
            step=step,
            layer=index,
            **({"step_kind": "decode", "variant": "A"} | fields),
        )
        for region, offset, duration in kernels
    ]


TWO_LAYERS = [
    kernel(0, 5, step=0, step_kind="decode", region="other"),
    *layer(10, 0, 0, ("attention", 0, 20), ("moe", 15, 10), ("moe", 27, 3)),
    *layer(50, 0, 1, ("attention", 0, 10), ("moe", 10, 10)),
    kernel(75, 5, region="other"),
]
"""The first MoE kernel of layer 0 begins 5 before attention ends; layer 1 begins 10
after layer 0 has ended."""

times = st.integers(min_value=0, max_value=300)
rows = st.builds(
    lambda start, duration, device, step, region, kind: kernel(
        start, duration, device=device, step=step, layer=step, region=region, kind=kind
    ),
    times,
    times,
    st.sampled_from([0, 1, None]),
    st.sampled_from([0, 1, None]),
    st.sampled_from(["attention", "moe"]),
    st.sampled_from(["kernel", "kernel", "kernel", "copy"]),
)


def test_shares_of_regions() -> None:
    """A gap belongs to the kernel that ends it, overlap to the one that came first."""
    found = region_shares(swept_kernels(placed(TWO_LAYERS)))
    expected = pl.DataFrame(
        {
            "device": [0] * 6,
            "step": [0, 0, 0, 0, 0, None],
            "step_kind": ["decode"] * 5 + [None],
            "layer": [None, 0, 0, 1, 1, None],
            "variant": [None, "A", "A", "A", "A", None],
            "region": ["other", "attention", "moe", "attention", "moe", "other"],
            "kernels": [1, 1, 2, 1, 1, 1],
            "share_ns": [5, 25, 10, 20, 10, 10],
            "gap_ns": [0, 5, 2, 10, 0, 5],
            "duration_ns": [5, 20, 13, 10, 10, 5],
            "hidden_ns": [0, 0, 5, 0, 0, 0],
        },
    )
    assert_frame_equal(found, expected)


def test_the_gap_before_a_step_is_of_no_layer() -> None:
    """It has a row of its own, so that no layer is longer for being the first."""
    rows = [
        *layer(0, 0, 0, ("moe", 0, 10)),
        *layer(30, 1, 0, ("moe", 0, 10)),
    ]
    found = region_shares(swept_kernels(placed(rows)))
    expected = pl.DataFrame(
        {
            "device": [0] * 3,
            "step": [0, 1, None],
            "step_kind": ["decode", "decode", None],
            "layer": [0, 0, None],
            "variant": ["A", "A", None],
            "region": ["moe", "moe", "between steps"],
            "kernels": [1, 1, 0],
            "share_ns": [10, 10, 20],
            "gap_ns": [0, 0, 20],
            "duration_ns": [10, 10, 0],
            "hidden_ns": [0, 0, 0],
        }
    )
    assert_frame_equal(found, expected)


def test_medians_of_layers() -> None:
    """Medians are over layers; the whole layer has the median of its own sums."""
    found = layer_medians(region_shares(swept_kernels(placed(TWO_LAYERS))))
    expected = pl.DataFrame(
        {
            "device": [0] * 3,
            "step_kind": ["decode"] * 3,
            "variant": ["A"] * 3,
            "region": ["attention", "moe", None],
            "layers": [2] * 3,
            "kernels": [1.0, 1.5, 2.5],
            "share_ns": [22.5, 10.0, 32.5],
            "mean_share_ns": [22.5, 10.0, 32.5],
            "gap_ns": [7.5, 1.0, 8.5],
            "duration_ns": [15.0, 11.5, 26.5],
            "hidden_ns": [0.0, 2.5, 2.5],
        }
    )
    assert_frame_equal(found, expected)


def test_a_region_that_a_layer_lacks_counts_as_zero() -> None:
    """Mean shares add up to that of the whole layer, also where a region is missing."""
    rows = [
        *layer(0, 0, 0, ("attention", 0, 10), ("moe", 10, 30)),
        *layer(40, 0, 1, ("attention", 0, 10)),
    ]
    found = layer_medians(region_shares(swept_kernels(placed(rows))))
    means = found.select("region", "mean_share_ns").rows()
    assert means == [("attention", 10.0), ("moe", 15.0), (None, 25.0)]


def test_steps() -> None:
    """A step has its layers and kernels, and the gap before it apart."""
    rows = [
        *layer(0, 0, 0, ("moe", 0, 10)),
        *layer(30, 1, 0, ("moe", 0, 10), ("moe", 15, 5)),
    ]
    expected = pl.DataFrame(
        {
            "device": [0, 0],
            "step": [0, 1],
            "step_kind": ["decode"] * 2,
            "layers": [1, 1],
            "kernels": [1, 2],
            "share_ns": [10, 20],
            "gap_ns": [0, 5],
            "duration_ns": [10, 15],
            "hidden_ns": [0, 0],
            "before_ns": [0, 20],
        }
    )
    assert_frame_equal(step_shares(swept_kernels(placed(rows))), expected)


def test_parts_of_a_step_add_up() -> None:
    """What lies in layers and outside of them adds up to the mean step."""
    shares = region_shares(swept_kernels(placed(TWO_LAYERS)))
    expected = pl.DataFrame(
        {
            "device": [0] * 3,
            "step_kind": ["decode"] * 3,
            "steps": [1] * 3,
            "is_in_layer": [True, True, False],
            "region": ["attention", "moe", "other"],
            "kernels": [2.0, 3.0, 1.0],
            "share_ns": [45.0, 20.0, 5.0],
            "gap_ns": [15.0, 2.0, 0.0],
            "duration_ns": [30.0, 23.0, 5.0],
            "hidden_ns": [0.0, 5.0, 0.0],
        }
    )
    assert_frame_equal(step_parts(shares), expected)


def test_copies_beyond_the_kernels_are_no_part_of_the_time() -> None:
    """A device's time begins and ends with kernels, not with a copy far from them."""
    rows = [
        kernel(0, 10, kind="copy"),
        kernel(1_000, 10),
        kernel(1_020, 5, kind="copy"),
        kernel(1_030, 10),
        kernel(9_000, 10, kind="copy"),
    ]
    expected = pl.DataFrame(
        {
            "device": [0],
            "kernels": [2],
            "copies": [1],
            "streams": [1],
            "span_ns": [40],
            "sum_ns": [25],
            "busy_ns": [25],
            "gap_ns": [15],
        }
    )
    assert_frame_equal(device_totals(swept_kernels(placed(rows))), expected)


def test_a_device_without_kernels_has_no_time() -> None:
    """Copies alone make no row."""
    assert device_totals(swept_kernels(placed([kernel(0, 5, kind="copy")]))).is_empty()


@given(st.lists(rows, max_size=30))
def test_every_nanosecond_is_in_one_share(kernels: list[Row]) -> None:
    """Gaps and exclusive times, and so shares of regions, add up to the span."""
    swept = swept_kernels(placed(kernels))
    spans = swept.group_by("device").agg(
        span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        parts_ns=pl.col("gap_ns").sum() + pl.col("exclusive_ns").sum(),
    )
    assert spans["parts_ns"].to_list() == spans["span_ns"].to_list()
    shares = region_shares(swept)
    by_region = shares.group_by("device").agg(pl.col("share_ns").sum())
    assert dict(by_region.rows()) == dict(spans.select("device", "span_ns").rows())
    parts = pl.col("gap_ns") + pl.col("duration_ns") - pl.col("hidden_ns")
    assert shares.filter(pl.col("share_ns") != parts).is_empty()
    totals = device_totals(swept)
    assert totals.filter(
        pl.col("span_ns") != pl.col("busy_ns") + pl.col("gap_ns")
    ).is_empty()


@given(st.lists(rows, max_size=30))
def test_means_add_up(kernels: list[Row]) -> None:
    """Mean shares of the regions of a variant add up to that of its whole layer."""
    found = layer_medians(region_shares(swept_kernels(placed(kernels))))
    kinds = ["device", "step_kind", "variant"]
    sums = found.group_by(kinds).agg(
        regions=pl.col("mean_share_ns").filter(pl.col("region").is_not_null()).sum(),
        whole=pl.col("mean_share_ns").filter(pl.col("region").is_null()).sum(),
    )
    assert sums.filter((pl.col("regions") - pl.col("whole")).abs() > 1e-6).is_empty()
