"""Whether a step is decode or prefill, as far as its kernels tell."""

from typing import Final

import polars as pl

_DECODES: Final = (
    r"BatchDecodeWith|paged_attention_(?:v1|v2|ll4mi)|masked_multihead_attention|"
    r"_fwd_grouped_kernel_stage1|decode_attention|flash_?mla|mla_decode|ForGen"
)
"""Kernels of attention that take few new tokens a request, and no more."""

_PREFILLS: Final = (
    r"fmha\w*Context|context_attention_fwd|ck_tile\w*FmhaFwdKernel|prefill_attention|"
    r"BatchPrefillWithRagged"
)
"""Kernels of attention that take whole prompts. FlashInfer's for a paged cache is not
among them: it is used for decode, too."""


def kinds_by_kernels(stepped: pl.DataFrame) -> pl.DataFrame:
    """Tell the kind of steps of which no name told it.

    Args:
        stepped: Has String name, Int64 _step and String step_kind.

    Returns:
        `stepped` in its order; step_kind is null outside of steps, and in each either
        as it was or, where that was null or "unknown", what kernels show.
    """
    is_decode = pl.col("name").str.contains(_DECODES).any().over("_step")
    is_prefill = pl.col("name").str.contains(_PREFILLS).any().over("_step")
    by_kernels = (
        pl.when(is_decode & is_prefill)
        .then(pl.lit("mixed"))
        .when(is_decode)
        .then(pl.lit("decode"))
        .when(is_prefill)
        .then(pl.lit("prefill"))
        .otherwise(pl.lit("unknown"))
    )
    is_told = pl.col("step_kind").is_not_null() & (pl.col("step_kind") != "unknown")
    kind = pl.when(is_told).then("step_kind").otherwise(by_kernels)
    return stepped.with_columns(
        step_kind=pl.when(pl.col("_step").is_not_null()).then(kind)
    )
