"""What is asked of kernels again and again when their order tells their regions."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from layerscope.analyze.kernel_rules import Join, Rules
from layerscope.analyze.trace_communication import is_communication
from layerscope.schema import INT

_ALL_REDUCE: Final = r"(^|\+)all_reduce(\+|$)"
_KINDS: Final = ("fill", "copy")
"""Roles that a kernel's kind tells where no rule does."""


def marked(kernels: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """`kernels`, with what is asked of each again and again.

    _row, _step and _layer; _line, on which order tells; _leads, on the line with most
    kernels of its step; _free, for communication
    that is no all-reduce; _apart, where a kernel says nothing of others; _told, where
    it does; _vague, where only a range told its region, and _plain, where a sequence
    may tell its role as well; and part and place, which `with_joins` changes.
    """
    missing = {"step", "layer"}.difference(kernels.columns)
    stepped = kernels.with_columns(pl.lit(None, INT).alias(name) for name in missing)
    role, by = pl.col("role"), pl.col("assigned_by")
    is_ranged = by.str.starts_with("range ")
    renamed = list({old for rule in rules.sequence for old in rule.rename})
    vague = {rule.role for rule in rules.rule if rule.region is None}
    is_apart = by.is_in(rules.apart).fill_null(value=False)
    marks = {
        "_free": is_free(),
        "_apart": is_apart,
        "_told": pl.col("region").is_not_null() & ~is_apart,
        "_plain": is_ranged & role.is_in(renamed),
        "_vague": is_ranged & role.is_in([*vague, *_KINDS]),
    }
    line = ["device", "step", "stream"]
    size = (~pl.col("_free")).sum().over(line)
    return (
        stepped.with_row_index("_row")
        .with_columns(pl.col("_row").cast(INT), _step="step", _layer="layer")
        .with_columns(each.fill_null(value=False).alias(n) for n, each in marks.items())
        .with_columns(
            _line=pl.col("_row").first().over(line),
            _leads=size == size.max().over("device", "step"),
            part=role,
            place=pl.col("_row"),
        )
    )


def is_free() -> pl.Expr:
    """Which kernels with a role are communication, but no all-reduce by rule.

    No place among other kernels explains them: weights that are gathered ahead of their
    layer run wherever there is time.
    """
    is_reduce = pl.col("role").str.contains(_ALL_REDUCE).fill_null(value=False)
    return is_communication() & ~is_reduce


def with_joins(kernels: pl.DataFrame, joins: Iterable[Join]) -> pl.DataFrame:
    """`kernels` of `marked`, with the place and part of those they are part of."""
    for join in joins:
        kernels = _joined(kernels, join)
    return kernels


def _joined(kernels: pl.DataFrame, join: Join) -> pl.DataFrame:
    """Give kernels the place and part of the one beside them whose part they are."""
    is_back = join.to == "previous"
    row = pl.col("_row")
    marked = kernels.with_columns(
        _main=(pl.col("part") == join.of).fill_null(value=False),
        _joins=pl.col("role").is_in(list(join.roles)).fill_null(value=False),
    )

    def nearest(values: pl.Expr, where: pl.Expr) -> pl.Expr:
        told = pl.when(where).then(values)
        filled = told.forward_fill() if is_back else told.backward_fill()
        return filled.over("_line")

    marked = marked.with_columns(
        _near=nearest(row, pl.col("_main")),
        _stop=nearest(row, ~pl.col("_main") & ~pl.col("_joins")),
    )
    stop, near = pl.col("_stop"), pl.col("_near")
    is_whole = stop.is_null() | ((stop < near) if is_back else (stop > near))
    is_within = (row - near).abs() <= join.times
    marked = marked.with_columns(_member=(is_within & is_whole).fill_null(value=False))
    follows = pl.col("_member").shift(1 if is_back else -1).over("_line")
    marked = marked.with_columns(
        _begins=pl.col("_main") & ~(pl.col("_joins") & follows.fill_null(value=False))
    )
    marked = marked.with_columns(_at=nearest(pl.col("place"), pl.col("_begins")))
    name = pl.lit(join.as_ or join.of)
    role = name if join.as_ else pl.col("role")
    is_member = pl.col("_member")
    return marked.with_columns(
        place=pl.when(is_member).then("_at").otherwise("place"),
        part=pl.when(is_member).then(name).otherwise("part"),
        role=pl.when(is_member).then(role).otherwise("role"),
    ).drop("_main", "_joins", "_near", "_stop", "_member", "_begins", "_at")
