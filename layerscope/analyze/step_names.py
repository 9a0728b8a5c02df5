"""What the names of ranges say of steps: whether they are any, and of which kind."""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal, TypeAlias

import polars as pl

from layerscope.schema import INT, TEXT

StepKind: TypeAlias = Literal["decode", "prefill", "mixed", "unknown"]


class Source(IntEnum):
    """Who names steps, the closest to one forward pass first."""

    SGLANG = 0
    VLLM = 1
    TENSORRT_LLM = 2
    PROFILER = 3
    NUMBERED = 4


FORWARD: Final = (Source.SGLANG, Source.VLLM, Source.TENSORRT_LLM)
"""Sources whose steps are one forward pass each; others' may hold several."""

_SGLANG_KINDS: Final[dict[str, StepKind]] = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "EXTEND": "prefill",
    "PREFILL": "prefill",
    "SPLIT_PREFILL": "prefill",
    "MIXED": "mixed",
}


def _sglang(match: re.Match[str]) -> StepKind:
    return _SGLANG_KINDS.get(match[1], "unknown")


def _by_counts(match: re.Match[str]) -> StepKind:
    """Of requests in prefill, and in decode."""
    prefills, decodes = (int(count) > 0 for count in match.groups())
    if prefills:
        return "mixed" if decodes else "prefill"
    return "decode" if decodes else "unknown"


def _by_new(match: re.Match[str]) -> StepKind:
    """Of new requests, and of others: these may still be in prefill."""
    new, others = (int(count) > 0 for count in match.groups())
    return "prefill" if new and not others else "unknown"


def _untold(_match: re.Match[str]) -> StepKind:
    return "unknown"


_Kind: TypeAlias = Callable[[re.Match[str]], StepKind]

_NAMES: Final[tuple[tuple[Source, re.Pattern[str], _Kind], ...]] = (
    (Source.SGLANG, re.compile(r"step\[([A-Z_]+)\b"), _sglang),
    (
        Source.VLLM,
        re.compile(r"execute_.*context_(\d{1,9})\(.*generation_(\d{1,9})\("),
        _by_counts,
    ),
    (Source.VLLM, re.compile(r"execute_new_(\d{1,9})_cached_(\d{1,9})"), _by_new),
    (Source.VLLM, re.compile(r"execute_.*(?:context|generation)_"), _untold),
    (
        Source.TENSORRT_LLM,
        re.compile(r".*_forward_step \d+: (\d{1,9}) ctx reqs,.*?(\d{1,9}) gen reqs"),
        _by_counts,
    ),
    (Source.PROFILER, re.compile(r"ProfilerStep#\d+"), _untold),
    (
        Source.NUMBERED,
        re.compile(r"(?i)(?:[\w./-]*[ _:/])?(?:step|iter|iteration)[ _#:-]*\d+$"),
        _untold,
    ),
)
_PERHAPS: Final = r"(?i)step|iter|^execute_"  # in all of them; most names lack it
_LONGEST: Final = 512  # longer names are no steps; patterns must not be slow on them


def step_ranges(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges that are steps.

    Args:
        ranges: `schema.TRACE_RANGES`.

    Returns:
        Those of them that name a step, in their order, with Int64 source (a `Source`)
        and String step_kind.
    """
    names = ranges["name"].unique()
    names = names.filter(names.str.contains(_PERHAPS))
    rows = [
        (name, *told) for name in names.to_list() if (told := _told(name)) is not None
    ]
    named = pl.DataFrame(
        rows, schema={"name": TEXT, "source": INT, "step_kind": TEXT}, orient="row"
    )
    joined = ranges.join(named, on="name", how="left", maintain_order="left")
    is_step = pl.col("kind") == "step"
    return joined.with_columns(
        source=pl.col("source").fill_null(
            pl.when(is_step).then(pl.lit(Source.PROFILER.value, INT))
        ),
        step_kind=pl.col("step_kind").fill_null("unknown"),
    ).drop_nulls("source")


def _told(name: str) -> tuple[int, StepKind] | None:
    if len(name) > _LONGEST:
        return None
    for source, pattern, kind in _NAMES:
        match = pattern.match(name)
        if match is not None:
            return source.value, kind(match)
    return None
