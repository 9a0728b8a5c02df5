"""Which kernels of a trace are the same: by name, without what varies between them."""

from typing import Final

import polars as pl

_VARIES: Final = (
    # addresses that Python objects put into names of generated kernels
    (r"0x[0-9a-fA-F]+", ""),
    # hashes of sources and configurations
    (r"[0-9a-f]{16,}", ""),
    # TorchInductor and XLA number what they fuse, one kernel after another
    (r"^([^<(]*fus(?:ed|ion)[^<(]*?)(?:[_.]\d+)+$", "${1}"),
)

NORM: Final = r"(?i)rms_?norm|layer_?norm|norm2d|add_norm|rsqrt"
"""Names of kernels that normalise the hidden state, or do the root of it."""

_ROOT: Final = r"(?i)^[^(]*rsqrt_kernel"
"""The root alone, where a norm is a chain of element-wise kernels."""

_BEFORE_ROOT: Final = (
    r"(?i)pow_tensor|square|MeanOps|WelfordOps|_copy_kernel|CUDAFunctorOnSelf_add"
)
"""Links of such a chain that come before the root."""


def with_identity(kernels: pl.DataFrame) -> pl.DataFrame:
    """Tell equal kernels by a number, and which of them belong to norms.

    Grids and blocks take no part: they vary with rows and KV length between layers that
    are equal.

    Args:
        kernels: Has String name and, if known, String role.

    Returns:
        `kernels` in its order with Int64 identity (from 0), and Boolean is_norm (it
        normalises), is_root (of a norm that is a chain) and is_link (of such a chain,
        before the root).
    """
    plain = pl.col("name")
    for pattern, kept in _VARIES:
        plain = plain.str.replace_all(pattern, kept)
    named = kernels.select(pl.col("name").unique(maintain_order=True)).with_columns(
        identity=plain.rank("dense").cast(pl.Int64) - 1,
        is_norm=pl.col("name").str.contains(NORM),
        is_root=pl.col("name").str.contains(_ROOT),
        is_link=pl.col("name").str.contains(_BEFORE_ROOT),
    )
    joined = kernels.join(named, on="name", how="left", maintain_order="left")
    if "role" not in kernels.columns:
        return joined
    by_role = pl.col("role").cast(pl.String).str.contains(r"(^|\+)norm($|\+)")
    return joined.with_columns(
        is_norm=pl.col("is_norm") | by_role.fill_null(value=False)
    )
