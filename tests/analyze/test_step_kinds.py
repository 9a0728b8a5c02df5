"""Kinds of steps, by their kernels."""

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.step_kinds import kinds_by_kernels


def test_kinds() -> None:
    """Kernels that only one kind has tell it; a name that told one is believed."""
    kernels = pl.DataFrame(
        [
            ("BatchDecodeWithPagedKVCacheKernel", 0, None),
            ("gemm", 0, None),
            ("fmhaSm100aKernel_PersistentContext", 1, "unknown"),
            ("paged_attention_v2_kernel", 2, None),
            ("context_attention_fwd", 2, None),
            ("BatchPrefillWithPagedKVCacheKernel", 3, None),
            ("paged_attention_v1", 4, "mixed"),
            ("paged_attention_v1", None, None),
        ],
        schema={"name": pl.String, "_step": pl.Int64, "step_kind": pl.String},
        orient="row",
    )
    kinds = ["decode", "decode", "prefill", "mixed", "mixed", "unknown", "mixed", None]
    expected = kernels.with_columns(step_kind=pl.Series(kinds))
    assert_frame_equal(kinds_by_kernels(kernels), expected)
