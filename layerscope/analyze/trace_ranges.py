"""What the host ranges of a trace say of the kernels that were launched in them.

A kernel is launched by a call, a call is made within ranges of its thread: NVTX, user
annotations, modules. Ranges on a device row hold kernels of their stream in place of
that. All kernels of a graph's replay are launched by one call and are in its ranges.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from layerscope.analyze.kernel_rules import NAMED, RangeRule, Rules
from layerscope.regions import LABEL_PREFIX
from layerscope.schema import INT, TEXT

_HOST: Final = ("process", "thread")
_DEVICE: Final = ("process", "device", "stream")
_LAYER: Final = (
    r"(?:\b(?:layers?|h|blocks?)[._]|(?:Layer|Block)_)(\d{1,6})(?:[^\dA-Za-z_]|$)"
)
"""The number of a layer, as module paths and PyTorch's class counts give it."""

_TOLD: Final = {
    "range_name": (),
    "range_layer": (),
    "role": (),
    "region": ("_rule", "_coarse"),
}
"""What a range may tell, each with what belongs to it; found apart from each other."""

_ROLE: Final = rf"^{LABEL_PREFIX}role:(.+)$"
_END, _START, _POINT = (pl.lit(value, pl.Int8) for value in range(3))
"""At one time, ranges end before others begin, and those hold what starts with them."""


def assign_by_ranges(
    kernels: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, rules: Rules
) -> pl.DataFrame:
    """What the innermost range says that says anything.

    Args:
        kernels: as of a `trace.Trace`, with any columns more.
        calls: of the same trace.
        ranges: of the same trace; steps say nothing here.
        rules: the range rules; of those whose pattern is in a name, the first counts.

    Returns:
        `kernels` with range_name (String: of the innermost range), range_layer (Int64:
        number of the layer), role (String: of marks of layerscope's own), region and
        assigned_by ("range NAME"). Of ranges that also hold other regions, region and
        rule are range_region and range_rule instead. Null where no range tells.
    """
    named = _explained(ranges.filter(pl.col("kind") != "step"), rules.range)
    numbered = kernels.with_row_index("_row")
    launched = _launched(numbered, calls)
    started = numbered.with_columns(at=pl.col("start_ns"))
    is_host = pl.col("device").is_null()
    sides = (
        (launched, named.filter(is_host), _HOST),
        (started, named.filter(~is_host), _DEVICE),
    )
    for told, beside in _TOLD.items():
        found = [
            _innermost(points, spans.drop_nulls(told), by, [told, *beside])
            for points, spans, by in sides
        ]
        first = pl.concat(found).unique("_row", keep="first", maintain_order=True)
        numbered = numbered.join(first, on="_row", how="left", maintain_order="left")
    is_coarse = pl.col("_coarse")
    return numbered.with_columns(
        region=pl.when(~is_coarse).then("region"),
        assigned_by=pl.when(~is_coarse).then("_rule"),
        range_region=pl.when(is_coarse).then("region"),
        range_rule=pl.when(is_coarse).then("_rule"),
    ).drop("_row", "_rule", "_coarse")


def _explained(ranges: pl.DataFrame, rules: Sequence[RangeRule]) -> pl.DataFrame:
    """`ranges`, with what their names say of layer, role and region."""
    name = pl.col("name")
    number = pl.coalesce(
        *(
            pl.when(name.str.contains(rule.pattern)).then(pl.lit(i))
            for i, rule in enumerate(rules)
        ),
        pl.lit(None, pl.Int32),
    )
    regions = {i: rule.region for i, rule in enumerate(rules)}
    labels = {i: f"range {rule.name}" for i, rule in enumerate(rules)}
    coarse = {i: rule.coarse for i, rule in enumerate(rules)}
    rule = pl.col("_number")
    region = rule.replace_strict(regions, default=None, return_dtype=TEXT)
    names = ranges.select(pl.col("name").drop_nulls().unique()).with_columns(
        _number=number,
        range_name=name,
        range_layer=name.str.extract(_LAYER).cast(INT),
        role=name.str.extract(_ROLE),
    )
    told = names.with_columns(
        region=pl.when(region == NAMED)
        .then(name.str.extract(r"([A-Za-z][A-Za-z0-9_]*)$"))
        .otherwise(region),
        _rule=rule.replace_strict(labels, default=None, return_dtype=TEXT),
        _coarse=rule.replace_strict(coarse, default=None, return_dtype=pl.Boolean()),
    )
    return ranges.join(told, on="name", how="inner", maintain_order="left")


def _launched(kernels: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Row, thread and time of the call that launched each kernel."""
    made = (
        calls.drop_nulls("correlation")
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .select("process", "correlation", "thread", at="start_ns")
    )
    return kernels.select("_row", "process", "correlation").join(
        made, on=["process", "correlation"], how="inner", nulls_equal=True
    )


def _innermost(
    points: pl.DataFrame, ranges: pl.DataFrame, by: Sequence[str], told: Sequence[str]
) -> pl.DataFrame:
    """Columns `told` of the innermost range that holds each point, by row.

    The ranges of a line are nested. So the number of ranges that are open at a point is
    the depth of the innermost, and of those opened at that depth it is the last.
    """
    spans = ranges.filter(pl.col("end_ns") > pl.col("start_ns")).with_row_index(
        "_range"
    )
    if spans.is_empty():
        return points.clear().select("_row").with_columns(spans.select(told))
    size = pl.col("end_ns") - pl.col("start_ns")
    events = pl.concat(
        [
            spans.select(*by, "_range", at="start_ns", _what=_START, _size=size),
            spans.select(*by, at="end_ns", _what=_END),
            points.select(*by, "_row", "at", _what=_POINT),
        ],
        how="diagonal",
    ).sort(*by, "at", "_what", "_size", descending=[False] * (len(by) + 2) + [True])
    opens = (pl.col("_what") == _START).cast(INT)
    closes = (pl.col("_what") == _END).cast(INT)
    return (
        events.with_columns(_depth=(opens - closes).cum_sum().over(by))
        .select(
            "_row", "at", "_what", pl.col("_range").forward_fill().over(*by, "_depth")
        )
        .filter(pl.col("_what") == _POINT)
        .join(spans.select("_range", "end_ns", *told), on="_range")
        .filter(pl.col("end_ns") > pl.col("at"))
        .select("_row", *told)
    )
