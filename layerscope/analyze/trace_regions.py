"""Which region of a layer a kernel of a trace belongs to, and what says so.

In this order: the ranges that it was launched in (`trace_ranges.assign_by_ranges`), its
own name (`assign_by_rules`), its place among kernels of which that is known
(`trace_sequences.assign_by_sequences`), a range that also holds other regions, and
kernels of one region on both sides (`fill_between`). What none of these tells stays
"unassigned", as a row.

Frames pass through with all their rows, in their order, and with all other columns.
Until `fill_between`, region and assigned_by are null where nothing has said them.
"""

from typing import Final

import polars as pl

from layerscope.analyze.kernel_marks import is_free
from layerscope.analyze.kernel_rules import Rules
from layerscope.schema import TEXT, UNASSIGNED

NEIGHBOURS: Final = "neighbours"
NOTHING: Final = "nothing"
FEW: Final = 3
"""So many kernels in a row outside of layers may be like those around them."""

_COLLECTIVES: Final = {
    "all_?reduce": "all_reduce",
    "all_?gather": "all_gather",
    "reduce_?scatter": "reduce_scatter",
}
_KIND_ROLES: Final = {"copy": "copy", "fill": "fill"}


def assign_by_rules(kernels: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """What the names of kernels say.

    Args:
        kernels: ``name``, ``kind`` and ``collective`` as `schema.TRACE_KERNELS` has
            them; region and assigned_by, where `assign_by_ranges` came before.
        rules: of those whose pattern is in the name, the first counts.

    Returns:
        `kernels` with role (String, null where no rule applies), and where neither was
        known region and assigned_by ("rule NAME").
    """
    missing = {"region", "role", "assigned_by"}.difference(kernels.columns)
    kernels = kernels.with_columns(pl.lit(None, TEXT).alias(name) for name in missing)
    told = kernels.join(
        _matched(kernels.get_column("name"), rules),
        on="name",
        how="left",
        maintain_order="left",
    )
    is_new = pl.col("region").is_null() & pl.col("_region").is_not_null()
    return told.with_columns(
        role=pl.coalesce("role", _collective_role(), "_role", _kind_role()),
        region=pl.coalesce("region", "_region"),
        assigned_by=pl.when(is_new).then("_rule").otherwise("assigned_by"),
    ).drop("_region", "_role", "_rule")


def _matched(names: pl.Series, rules: Rules) -> pl.DataFrame:
    """Role, region and rule of every distinct name: one row a name."""
    left = names.drop_nulls().unique(maintain_order=True)
    found = []
    for rule in rules.rule:
        is_match = left.str.contains(rule.pattern)
        found.append(
            left.filter(is_match)
            .to_frame("name")
            .with_columns(
                _role=pl.lit(rule.role),
                _region=pl.lit(rule.region, TEXT),
                _rule=pl.lit(f"rule {rule.name}"),
            )
        )
        left = left.filter(~is_match)
    schema = dict.fromkeys(("name", "_role", "_region", "_rule"), TEXT)
    return pl.concat([pl.DataFrame(schema=schema), *found])


def _collective_role() -> pl.Expr:
    """The role of collectives whose names do not tell it, but whose parameters do."""
    told = pl.col("collective").str.to_lowercase()
    roles = [
        pl.when(told.str.contains(pattern)).then(pl.lit(role))
        for pattern, role in _COLLECTIVES.items()
    ]
    return pl.when(pl.col("_role") == "collective").then(pl.coalesce(*roles))


def _kind_role() -> pl.Expr:
    return pl.col("kind").replace_strict(_KIND_ROLES, default=None, return_dtype=TEXT)


def fill_between(placed: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Give the rest the region of a range, or of those around them, or "unassigned".

    A range counts here that also holds kernels of other regions: range_region and
    range_rule, where `trace_ranges.assign_by_ranges` gave them. Then kernels between
    two of one region are of that region too. Between means: on one stream, in one
    layer. Outside of layers at most three kernels in a row are filled, as the same
    region may come again in a later layer. Copies to and from the host and other
    kernels whose rule is `apart` say nothing of those between them, and collectives
    other than all-reduces are not filled, see `kernel_marks.is_free`.

    Args:
        placed: `schema.TRACE_KERNELS`, and step, layer, region, role and assigned_by;
            in the order of `schema.PLACED_KERNELS`.
        rules: those that were used before; which of them are apart.

    Returns:
        `placed` with no null in region and assigned_by: "range NAME", "neighbours", or
        "nothing" where the region is still unknown.
    """
    if "range_region" in placed.columns:
        is_told = pl.col("region").is_null() & pl.col("range_region").is_not_null()
        placed = placed.with_columns(
            region=pl.coalesce("region", "range_region"),
            assigned_by=pl.when(is_told).then("range_rule").otherwise("assigned_by"),
        )
    line = ["device", "stream", "step", "layer"]
    region = pl.col("region")
    is_apart = pl.col("assigned_by").is_in(rules.apart).fill_null(value=False)
    told = pl.when(~is_apart).then(region)
    before, after = told.forward_fill().over(line), told.backward_fill().over(line)
    counted = placed.with_columns(_run=region.is_null().rle_id().over(line))
    is_short = pl.len().over(*line, "_run") <= FEW
    is_local = pl.col("layer").is_not_null() | is_short
    is_asked = region.is_null() & ~is_free()
    is_filled = (is_asked & (before == after) & is_local).fill_null(value=False)
    by = pl.when(is_filled).then(pl.lit(NEIGHBOURS)).otherwise("assigned_by")
    return counted.with_columns(
        region=pl.when(is_filled).then(before).otherwise(region).fill_null(UNASSIGNED),
        assigned_by=by.fill_null(NOTHING),
    ).drop("_run")
