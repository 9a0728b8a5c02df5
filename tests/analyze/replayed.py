"""Replays written down as few numbers, and any that could be recorded."""

from typing import TypeAlias

import polars as pl
from hypothesis import strategies as st

from layerscope.schema import KERNELS

Kernel: TypeAlias = tuple[int, str, int, int]
"""Pass, region, start in the replay, duration."""

KEYS = {"arm": "a", "experiment": "captured", "capture": 0, "round": 0}

# Everything at once: overlaps, nesting, no duration, ties, alternating passes. Streams
# follow from it, since kernels that overlap are on several or started early.
REPLAYS = st.lists(
    st.lists(
        st.tuples(
            st.integers(-1, 4),
            st.sampled_from(["attention", "moe", "other"]),
            st.integers(0, 60),
            st.integers(0, 15),
        ),
        min_size=1,
        max_size=20,
    ),
    min_size=1,
    max_size=3,
)


def frame(*replays: list[Kernel], arm: str = "a") -> pl.DataFrame:
    """`KERNELS` of one arm; nodes are numbered in the order given."""
    rows = []
    for replay, kernels in enumerate(replays):
        begin = min(start for _, _, start, _ in kernels)
        for node, (index, region, start, duration) in enumerate(kernels):
            first = min(other[2] for other in kernels if other[0] == index)
            rows.append(
                {
                    **KEYS,
                    "arm": arm,
                    "replay": replay,
                    "pass_index": index,
                    "node": node,
                    "kind": "kernel",
                    "name": "kernel",
                    "region": region,
                    "stream": node % 3,
                    "pass_start_ns": first - begin,
                    "start_ns": start - first,
                    "duration_ns": duration,
                }
            )
    return pl.DataFrame(rows, schema=KERNELS)
