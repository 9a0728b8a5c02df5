"""Passes that run the same kernels: the variants of a layer."""

import polars as pl

from layerscope.passes import GRAPH_PASS_KEYS


def pass_variants(kernels: pl.DataFrame) -> pl.DataFrame:
    """Which passes have the same list of kernels.

    Two passes are of one variant where the kernels of each region agree in number, and
    one by one in role and name, in the order of nodes.

    Args:
        kernels: `schema.KERNELS` of one (arm, experiment), and any columns more.

    Returns:
        `passes.GRAPH_PASS_KEYS`, and Int64 variant: 0 of the earliest pass and of all
        that are like it, 1 of the earliest other one, and so on. Sorted by the keys.
    """
    listed = (
        kernels.sort(*GRAPH_PASS_KEYS, "region", "node")
        .with_columns(_kind=pl.struct("region", "role", "name").rank("dense"))
        .group_by(GRAPH_PASS_KEYS, maintain_order=True)
        .agg("_kind")
    )
    numbers = (
        listed.select("_kind")
        .unique(maintain_order=True)
        .with_columns(variant=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    return (
        listed.join(numbers, on="_kind")
        .select(*GRAPH_PASS_KEYS, "variant")
        .sort(GRAPH_PASS_KEYS)
    )


def most_common_variants(variants: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The variant that most passes have, the lowest number of equally common ones.

    Args:
        variants: from `pass_variants`.
        by: columns; the variant is that of the passes with the same values there. None
            of them takes all passes together.

    Returns:
        The columns of `by`, and variant; sorted.
    """
    counted = variants.group_by(*by, "variant").len()
    ordered = counted.sort(
        *by, "len", "variant", descending=[*(False for _ in by), True, False]
    )
    first = (
        ordered.unique(by, keep="first", maintain_order=True) if by else ordered.head(1)
    )
    return first.select(*by, "variant")
