"""Regions of a rocpd run: calls of HIP and HSA, and the ranges that users mark."""

from typing import Final

import msgspec
import polars as pl

from layerscope.ingest.rocpd_run import RocpdRun, looked_up

_MARKER: Final = "MARKER"
_HSA: Final = "HSA"


class _Marked(msgspec.Struct):
    message: str = ""


def regions(run: RocpdRun, events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Calls and ranges of a run.

    Args:
        run: its tables.
        events: `RocpdRun.events` of it.

    Returns:
        Calls: columns of `schema.TRACE_CALLS`, and ``is_hsa``, Boolean. Ranges: columns
        of `schema.TRACE_RANGES`. Both with ``start_ns`` and ``end_ns``.
    """
    rows = run.work("region", ["name_id"]).join(
        events, on="event_id", how="left", maintain_order="left"
    )
    names = run.strings(rows["name_id"]).rename({"text": "name"})
    categories = run.categories(rows["category_id"])
    rows = looked_up(looked_up(rows, "name_id", names), "category_id", categories)
    category = pl.col("text").fill_null("")
    is_marker = category.str.starts_with(_MARKER)
    calls = rows.filter(~is_marker).select(
        *("process", "thread", "name", "start_ns", "end_ns", "correlation"),
        is_hsa=category.str.starts_with(_HSA),
    )
    markers = categories.filter(is_marker)["id"].to_list()
    ranges = looked_up(
        rows.filter(is_marker), "event_id", _messages(run, markers)
    ).select(
        *("process", "thread", "start_ns", "end_ns"),
        kind=pl.lit("annotation"),
        name=pl.coalesce("message", "name"),
    )
    return calls, ranges


def _messages(run: RocpdRun, categories: list[int]) -> pl.DataFrame:
    """What users wrote into markers: columns ``id`` (of the event) and ``message``."""
    told = run.frame("event", ["id"], ["extdata"], only={"category_id": categories})
    if not categories:
        told = told.clear()
    texts = told["extdata"].drop_nulls().unique()
    messages = {text: message for text in texts if (message := _message(text))}
    return told.select(
        "id",
        message=pl.col("extdata").replace_strict(
            list(messages),
            list(messages.values()),
            default=None,
            return_dtype=pl.String,
        ),
    )


def _message(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_Marked).message
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ""
