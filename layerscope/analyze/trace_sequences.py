"""Regions of kernels whose names do not tell: a product, a norm, an add.

Kernels of known region cut what runs on a device into stretches: one lies between an
attention's last known kernel and the first of the feed-forward, for example. Sequence
rules say which part of such a stretch belongs where. No stretch spans two steps or two
streams: what runs beside a layer is none of it because of when it ran.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from layerscope.analyze.kernel_cuts import with_cuts
from layerscope.analyze.kernel_marks import marked, with_joins
from layerscope.analyze.kernel_rules import Rules, SequenceRule
from layerscope.regions import Region
from layerscope.schema import TEXT

START: Final = "start"
END: Final = "end"
LAYER_END: Final = "layer_end"
"""What comes after a layer, where no kernel behind it told what its end is."""

LONGEST: Final = 100
"""Kernels of a stretch: in a longer one is more than the next part of a layer."""

BY_EXPERTS: Final = "sequence experts"
"""What says that an activation among kernels of experts belongs to ``moe``."""

_FEED_FORWARD: Final = [Region.MLP.value, Region.MOE.value]
_LAST, _NEXT = "_last", "_next"


def assign_by_sequences(kernels: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """What the kernels before and after tell of kernels of unknown region.

    Args:
        kernels: device, stream, collective, role, region and assigned_by, and step and
            layer where they are known; sorted by device, start and end. Outside of
            steps, and on other streams than the one with most of a step's kernels, the
            first and the last kernel are no start and end of anything.
        rules: joins and sequences; of the sequences that apply, the first counts.
            Collectives other than all-reduces are told by those alone that say so.

    Returns:
        `kernels`, with region, assigned_by ("sequence NAME") and sometimes a closer
        role where a sequence told them. ``mlp`` becomes ``moe`` where a kernel known to
        be of ``moe`` is part of the same feed-forward.
    """
    whole = with_joins(marked(kernels, rules), rules.join)
    is_unknown = pl.col("region").is_null()
    for level in ("_vague", "_plain"):
        # Ranges say the region of a product or norm, not which one it is. They are left
        # out first, so that what they hold is told as it is where there are no ranges.
        if whole[level].any():
            is_told = pl.col("_told") & ~pl.col(level)
            stretches = _stretches(whole, is_told, is_unknown | pl.col(level))
            whole = _updated(whole, _found(stretches, rules.sequence))
    stretches = _stretches(whole, pl.col("_told"), is_unknown)
    whole = _updated(whole, _found(stretches, rules.sequence))
    whole = _updated(whole, _found(_layer_ends(whole), rules.sequence))
    return _updated(whole, _with_experts(whole)).select(kernels.columns)


def _stretches(
    kernels: pl.DataFrame, is_told: pl.Expr, is_asked: pl.Expr
) -> pl.DataFrame:
    """The kernels asked for, and what is known before and after them.

    Adds stretch (Int64), and of the nearest kernel before and after that tells, as
    ``_last`` and ``_next`` with a suffix, region, role and layer. In a step without
    such a kernel the region is "start" or "end".
    """
    known = {
        "region": pl.col("region"),
        "role": pl.col("part"),
        "row": pl.col("_row"),
        "layer": pl.col("_layer"),
    }
    columns = []
    for name, values in known.items():
        told = pl.when(is_told).then(values)
        columns += [
            told.forward_fill().over("_line").alias(f"{_LAST}_{name}"),
            told.backward_fill().over("_line").alias(f"{_NEXT}_{name}"),
        ]
    is_step = pl.col("_step").is_not_null() & pl.col("_leads")
    ends = [
        pl.when(pl.col(f"{side}_row").is_null() & is_step)
        .then(pl.lit(end))
        .otherwise(f"{side}_region")
        .alias(f"{side}_region")
        for side, end in ((_LAST, START), (_NEXT, END))
    ]
    return (
        kernels.with_columns(columns)
        .filter(is_asked)
        .with_columns(*ends, stretch=pl.coalesce(f"{_LAST}_row", -1 - pl.col("_line")))
    )


def _layer_ends(kernels: pl.DataFrame) -> pl.DataFrame:
    """What is unknown behind the last known kernel of each layer."""
    is_asked = pl.col("region").is_null() & pl.col("_layer").is_not_null()
    stretches = _stretches(kernels, pl.col("_told"), is_asked)
    layer = pl.col("_layer")
    is_end = (layer == pl.col(f"{_LAST}_layer")) & layer.ne_missing(
        pl.col(f"{_NEXT}_layer")
    )
    return stretches.filter(is_end).with_columns(
        pl.lit(LAYER_END).alias(f"{_NEXT}_region"),
        pl.lit(None, TEXT).alias(f"{_NEXT}_role"),
    )


def _found(stretches: pl.DataFrame, rules: Sequence[SequenceRule]) -> pl.DataFrame:
    """What the first sequence that applies says of each kernel: one row a kernel."""
    short = stretches.filter(pl.len().over("stretch") <= LONGEST)
    cut = with_cuts(short, [cut for rule in rules for cut in rule.cuts()])
    found = [
        pl.when(_applies(rule)).then(pl.lit(number))
        for number, rule in enumerate(rules)
    ]
    number = pl.coalesce(*found, pl.lit(None, pl.Int32))
    names = {i: f"sequence {rule.name}" for i, rule in enumerate(rules)}
    regions = {i: rule.region for i, rule in enumerate(rules)}
    renamed = pl.DataFrame(
        [
            (i, old, new)
            for i, rule in enumerate(rules)
            for old, new in rule.rename.items()
        ],
        schema={"_rule": pl.Int32, "role": TEXT, "_role": TEXT},
        orient="row",
    )
    region = pl.col("_rule").replace_strict(regions, default=None, return_dtype=TEXT)
    by = pl.col("_rule").replace_strict(names, default=None, return_dtype=TEXT)
    known = pl.col("region")
    agrees = (known == pl.col("_region")) | pl.all_horizontal(
        each.is_in(_FEED_FORWARD) for each in (known, pl.col("_region"))
    )
    return (
        cut.with_columns(_rule=number)
        .filter(pl.col("_rule").is_not_null())
        .join(renamed, on=["_rule", "role"], how="left", maintain_order="left")
        .with_columns(
            _by=by,
            _region=pl.when(region == "before")
            .then(f"{_NEXT}_region")
            .when(region == "after")
            .then(f"{_LAST}_region")
            .otherwise(region),
        )
        .with_columns(
            _by=pl.when(known.is_null()).then("_by"),
            _region=pl.coalesce(known, "_region"),
            _role=pl.when(known.is_null() | agrees).then("_role"),
        )
        .select("_row", "_region", "_by", "_role")
    )


def _applies(rule: SequenceRule) -> pl.Expr:
    place = pl.col("place")
    tests = [_is_one_of(_LAST, rule.after), _is_one_of(_NEXT, rule.before)]
    if not rule.collectives:
        tests.append(~pl.col("_free"))
    if rule.from_:
        tests.append(place >= pl.col(rule.from_))
    if rule.past:
        tests.append(place > pl.col(rule.past))
    if rule.to:
        tests.append(place <= pl.col(rule.to))
    if rule.until:
        tests.append(place < pl.col(rule.until))
    tests += [pl.col(text).is_not_null() for text in rule.needs]
    tests += [pl.col(text).is_null() for text in rule.without]
    if rule.kernels:
        tests.append(pl.col("role").is_in(list(rule.kernels)))
    return pl.all_horizontal(*(test.fill_null(value=False) for test in tests))


def _is_one_of(side: str, wanted: Sequence[str]) -> pl.Expr:
    region, role = pl.col(f"{side}_region"), pl.col(f"{side}_role")
    return region.is_in(list(wanted)) | role.is_in(list(wanted)).fill_null(value=False)


def _with_experts(kernels: pl.DataFrame) -> pl.DataFrame:
    """Which kernels of ``mlp`` are in one feed-forward with some of ``moe``."""
    is_moe = pl.col("region") == Region.MOE.value
    return (
        kernels.filter(pl.col("region").is_not_null() & ~pl.col("_apart"))
        .with_columns(_feeds=pl.col("region").is_in(_FEED_FORWARD))
        .sort("_line", "_row")
        .with_columns(_run=pl.struct("_line", "_feeds").rle_id())
        .filter(pl.col("_feeds") & ~is_moe & is_moe.any().over("_run"))
        .select(
            "_row",
            _region=pl.lit(Region.MOE.value),
            _by=pl.lit(BY_EXPERTS),
            _role=pl.lit(None, TEXT),
        )
    )


def _updated(kernels: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """`kernels`, with what `told` says of some of them in place of what was known."""
    return (
        kernels.join(told, on="_row", how="left", maintain_order="left")
        .with_columns(
            region=pl.coalesce("_region", "region"),
            assigned_by=pl.coalesce("_by", "assigned_by"),
            role=pl.coalesce("_role", "role"),
        )
        .drop("_region", "_by", "_role")
    )
