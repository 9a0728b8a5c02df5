"""Kernels of models with a known structure, as numbers and as frames."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from hypothesis import strategies as st

from layerscope.analyze.kernel_line import KernelLine
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES

MIXERS: Final = {
    "full": ["qkv", "rope", "cache", "core_full", "reduce"],
    "sliding": ["qkv", "rope", "cache", "core_sliding"],
    "qk_norm": ["qkv", "layer_norm_q", "layer_norm_q", "rope", "cache", "core_full"],
    "mixed": ["qkv", "rope", "cache", "core_prefill", "core_decode"],
    "linear": ["in_proj", "split", "core_conv", "decay", "beta", "core_delta", "gate"],
}
FEEDS: Final = {
    "dense": ["gate_up", "silu", "down"],
    "experts": ["router", "topk", "align", "up", "act", "down_experts", "combine"],
}
FEED_NAMES: Final = frozenset({"silu", "act"})


@dataclass(frozen=True)
class Model:
    """What a forward pass runs."""

    layers: Sequence[tuple[str, str]]  # of `MIXERS` and `FEEDS`
    prologue: Sequence[str] = ("embed",)
    epilogue: Sequence[str] = ("lm_head", "argmax")
    reduces: bool = False  # all-reduces after attention and MLP
    extra: dict[int, Sequence[str]] = field(default_factory=dict)  # before its last

    def kernels(self) -> tuple[list[str], list[int], int]:
        """Names, where each layer begins, and where the last one ends."""
        names = list(self.prologue)
        starts = []
        reduce = ["all_reduce"] if self.reduces else []
        for number, (mixer, feed) in enumerate(self.layers):
            starts.append(len(names))
            names += ["fused_add_rms_norm" if number else "rms_norm", *MIXERS[mixer]]
            names += ["out", *reduce, "fused_add_rms_norm", *FEEDS[feed], *reduce]
            names[-1:-1] = self.extra.get(number, ())
        return [*names, "fused_add_rms_norm", *self.epilogue], starts, len(names)


def plain(layers: int, mixer: str = "full", feed: str = "dense") -> Model:
    """A model of equal layers."""
    return Model([(mixer, feed)] * layers)


def line(names: Sequence[str], *, cores: bool = True) -> KernelLine:
    """Those kernels on one stream; whether cores of attention are known to be some."""
    numbers: dict[str, int] = {}
    identity = [numbers.setdefault(name, len(numbers)) for name in names]

    def flags(told: Iterable[bool]) -> Any:  # noqa: ANN401
        return np.array(list(told), dtype=np.bool_)

    return KernelLine(
        np.array(identity, dtype=np.int64),
        flags(cores and name.startswith("core_") for name in names),
        flags(name in FEED_NAMES for name in names),
        flags("norm" in name or name == "rsqrt" for name in names),
        flags(name == "rsqrt" for name in names),
        flags(name in {"pow", "mean"} for name in names),
    )


def rows(names: Sequence[str], **fields: Any) -> pl.DataFrame:  # noqa: ANN401
    """`schema.TRACE_KERNELS` with region and role: 1 µs each, 100 ns apart.

    `fields` are columns, or values of all rows.
    """
    told: dict[str, Any] = {
        "device": 0,
        "stream": 7,
        "kind": "kernel",
        "start_ns": [1_100 * index for index in range(len(names))],
        "duration_ns": 1_000,
    } | fields
    frame = pl.DataFrame({"name": names}, schema={"name": pl.String}).with_columns(
        pl.Series(name, value) if isinstance(value, list) else pl.lit(value).alias(name)
        for name, value in told.items()
    )
    missing = [name for name in TRACE_KERNELS if name not in frame.columns]
    whole = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    is_core = pl.col("name").str.starts_with("core_")
    is_feed = pl.col("name").is_in(list(FEED_NAMES))
    return whole.select(
        *(pl.col(name).cast(dtype) for name, dtype in TRACE_KERNELS.items()),
        region=pl.when(is_core)
        .then(pl.lit("attention"))
        .when(is_feed)
        .then(pl.lit("mlp")),
        role=pl.when(is_core).then(pl.lit("core")),
    )


def calls(*made: dict[str, Any]) -> pl.DataFrame:
    """`schema.TRACE_CALLS`; what is not given is null, a call takes 1 µs."""
    told = [{"name": "cudaLaunchKernel", "duration_ns": 1_000} | each for each in made]
    columns = {name: [each.get(name) for each in told] for name in TRACE_CALLS}
    return pl.DataFrame(columns, schema=TRACE_CALLS)


def ranges(*made: tuple[str, int, int], **fields: Any) -> pl.DataFrame:  # noqa: ANN401
    """`schema.TRACE_RANGES` of (name, start, end); on the host, but for `fields`."""
    told = [
        {"kind": "annotation", "name": name, "start_ns": start, "end_ns": end} | fields
        for name, start, end in made
    ]
    columns = {name: [each.get(name) for each in told] for name in TRACE_RANGES}
    return pl.DataFrame(columns, schema=TRACE_RANGES)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Models of many structures, with any prologue and epilogue."""
    count = draw(st.integers(5, 40))
    mixer = draw(st.sampled_from(["full", "sliding", "qk_norm", "mixed"]))
    feed = draw(st.sampled_from(["dense", "experts"]))
    layers = [(mixer, feed)] * count
    structure = draw(st.sampled_from(["equal", "alternate", "first dense", "hybrid"]))
    if structure == "alternate":
        turns = ["full", "sliding"]
        layers = [(turns[number % 2], feed) for number in range(count)]
    if structure == "first dense":
        dense = draw(st.integers(1, 3))
        feeds = ["dense"] * dense + ["experts"] * (count - dense)
        layers = [(mixer, feed) for feed in feeds]
    if structure == "hybrid":
        turns = ["linear", "linear", "linear", "full"]
        layers = [(turns[number % 4], feed) for number in range(count)]
    before = draw(st.integers(0, 6))
    after = draw(st.integers(0, 4))
    extra = draw(st.sets(st.integers(0, count - 1), max_size=1))
    return Model(
        layers,
        prologue=[
            *["copy"] * before,
            *(f"input_{each}" for each in range(before)),
            "embed",
        ],
        epilogue=["lm_head", *(f"sample_{each}" for each in range(after))],
        reduces=draw(st.booleans()),
        extra={each: ["balance"] for each in extra},
    )
