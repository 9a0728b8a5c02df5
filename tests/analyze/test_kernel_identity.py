"""Which kernels are the same."""

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.kernel_identity import with_identity


def identities(*names: str) -> list[int]:
    """The number of each."""
    return with_identity(pl.DataFrame({"name": names}))["identity"].to_list()


def test_what_varies_between_equals() -> None:
    """Numbers of fused kernels, addresses and hashes tell nothing apart."""
    for one, other in (
        ("triton_poi_fused_add_3", "triton_poi_fused_add_12"),
        ("loop_add_fusion.4", "loop_add_fusion"),
        ("kernel_object_at_0x7f12ab_0", "kernel_object_at_0x7fffff_0"),
        ("gemm_0123456789abcdef01", "gemm_fedcba987654321000"),
    ):
        assert len(set(identities(one, other))) == 1


def test_what_does_not() -> None:
    """Sizes of tiles and numbers of templates do."""
    for one, other in (
        ("gemm_128x64", "gemm_64x64"),
        ("norm<float, 256>", "norm<float, 512>"),
        ("triton_poi_fused_add_3", "triton_poi_fused_mul_3"),
        ("mul_mat_q<(type)12>", "mul_mat_q<(type)14>"),
    ):
        assert len(set(identities(one, other))) == 2


def test_norms() -> None:
    """By name or by role; single operations of one are told apart."""
    kernels = pl.DataFrame(
        {
            "name": ["rms_norm", "x", "rsqrt_kernel_cuda", "pow_tensor", "l2_norm"],
            "role": [None, "all_reduce+norm", "norm_part", "norm_part", None],
        }
    )
    expected = kernels.with_columns(
        is_norm=pl.Series([True, True, True, False, False]),
        is_root=pl.Series([False, False, True, False, False]),
        is_link=pl.Series([False, False, False, True, False]),
    )
    found = with_identity(kernels)
    assert_frame_equal(found.drop("identity"), expected)
    assert sorted(found["identity"].to_list()) == [0, 1, 2, 3, 4]
