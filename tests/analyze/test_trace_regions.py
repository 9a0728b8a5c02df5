import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.kernel_rules import KernelRule, Rules, load_rules
from layerscope.analyze.trace_regions import assign_by_rules, fill_between
from tests.analyze.named_kernels import named

RULES = load_rules()

# Names as traces have them, and what they say alone: region, role, rule.
NAMES = {
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>": (
        None,
        "all_reduce",
    ),
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>": (None, "all_reduce"),
    "_ZN5aiter26cross_device_reduce_2stageI": (None, "all_reduce"),
    "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>>": (
        None,
        "all_reduce",
    ),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        None,
        "all_reduce",
    ),
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": (None, "reduce_scatter"),
    "void aiter::local_device_load_rmsnorm_naive<bf16, 512, 1>": (None, "norm"),
    "void deep_ep::internode_ll::dispatch<false, true, 7168>": ("moe", "dispatch"),
    "void deep_ep::intranode::combine<__nv_bfloat16, 8>": ("moe", "combine"),
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(deep_gemm::GemmType)0>": (None, "gemm"),
    "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<128u, (deep_gemm::GemmType)2>": (
        "moe",
        "experts",
    ),
    "void deep_gemm::sm100_fp8_paged_mqa_logits<1u>": ("attention", "index"),
    "void deep_gemm::sm100_mega_mhc_impl<5120u>": ("mhc", "mhc"),
    "mhc_pre_big_fuse_with_norm_tilelang_kernel": ("mhc", "mhc"),
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::X> >": (
        "attention",
        "core",
    ),
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::X> >": (
        "attention",
        "merge",
    ),
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple> >": (
        None,
        "gemm",
    ),
    "void cutlass::device_kernel<GemmUniversal<cutlass::gemm::GroupProblemShape> >": (
        "moe",
        "experts",
    ),
    "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100": (
        "attention",
        "core",
    ),
    "void flash::prepare_varlen_num_blocks_kernel<1, true>": ("attention", "metadata"),
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<2>": ("attention", "core"),
    "void flashinfer::PersistentVariableLengthMergeStatesKernel<8>": (
        "attention",
        "merge",
    ),
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>": (None, "norm"),
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>": (
        "other",
        "sampling",
    ),
    "_ZN7ck_tile6kentryILi1ENS_16MoeSortingKernelINS_": ("moe", "routing"),
    "_ZN5aiter40fmoe_fp8_blockscale_g1u1_novs_subGU_256E": ("moe", "experts"),
    "_ZN5aiter41mla_dec_stage1_bf16_a16w16_subQ128_mqa128E": ("attention", "core"),
    "void kn_mla_reduce_v1_ps<MlaReduceKernelV1Traits<512, 128, 1>>": (
        "attention",
        "merge",
    ),
    "kn_entry_2c_sbhd_cached_indirect_inplace<OpCachedFwd>": ("attention", "rope"),
    "_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_": ("attention", "core"),
    "attn_fwd": ("attention", "core"),
    "_fwd_grouped_kernel_stage1": ("attention", "core"),
    "_fwd_kernel_stage2": ("attention", "merge"),
    "_fwd_kernel_ep_scatter_1": ("moe", "dispatch"),
    "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 1, 4>": (None, "gemm"),
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>": (None, "gemm_part"),
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn": (None, "gemm"),
    "triton_poi_fused_mul_silu_slice_1": ("mlp", "activation"),
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": (None, "norm"),
    "triton_poi_fused__to_copy_1": (None, "elementwise"),
    "triton_tem_fused_mm_3": (None, "gemm"),
    "void mul_mat_q<(ggml_type)12, 128, false>(char const*)": (None, "gemm"),
    "void flash_attn_tile<256, 256, 8, 4, false>(char const*)": ("attention", "core"),
    "void rope_multi<true, false, float>(float const*)": ("attention", "rope"),
    "void k_set_rows<float, long, __half>(float const*)": ("attention", "kv_write"),
    "void topk_moe_cuda<128, false>(float const*)": ("moe", "routing"),
    "void gated_delta_net_cuda<128, false>(float const*)": ("attention", "linear_core"),
    "quantize_mmq_q8_1<(mmq_q8_1_ds_layout)1>(float const*)": (None, "quantise"),
    "verify_tree_greedy_kernel": ("other", "verify"),
    "void build_tree_efficient(long*)": ("draft", "draft_inputs"),
    "my_own_kernel": (None, None),
}


@pytest.mark.parametrize(
    ("name", "told"), NAMES.items(), ids=lambda value: str(value)[:40]
)
def test_names(name: str, told: tuple[str | None, str | None]) -> None:
    """A name alone says what the kernel does, and its region where it can."""
    found = assign_by_rules(named([name]), RULES)
    assert found.select("region", "role").row(0) == told


def test_assign_by_rules() -> None:
    """The first rule of those whose pattern is found counts; order and rows stay."""
    rules = Rules(
        rule=(
            KernelRule(name="one", pattern="ab", role="r", region="moe"),
            KernelRule(name="two", pattern="a", role="s"),
        )
    )
    kernels = named(["xa", "ab", "c", "xa", "Memset (Device)", "Memcpy DtoD"])
    expected = kernels.with_columns(
        region=pl.Series([None, "moe", None, None, None, None]),
        role=pl.Series(["s", "r", None, "s", "fill", "copy"]),
        assigned_by=pl.Series([None, "rule one", None, None, None, None]),
    )
    found = assign_by_rules(kernels, rules)
    assert_frame_equal(found, expected, check_column_order=False)


def test_ranges_come_before_names() -> None:
    """A region that a range has told stays, and so does its role."""
    kernels = named(["flash_fwd_kernel", "flash_fwd_kernel"]).with_columns(
        region=pl.Series(["moe", None]),
        role=pl.Series(["gate_up", None]),
        assigned_by=pl.Series(["range moe", None]),
    )
    found = assign_by_rules(kernels, RULES)
    assert found.select("region", "role", "assigned_by").rows() == [
        ("moe", "gate_up", "range moe"),
        ("attention", "core", "rule flash-attention"),
    ]


def test_parameters_tell_which_collective() -> None:
    """RCCL has one kernel for all collectives; the trace may say which one it was."""
    kernels = named(["ncclDevKernel_Generic_1(ncclDevKernelArgs)"] * 5).with_columns(
        collective=pl.Series(
            ["allreduce", "_allgather_base", "_reduce_scatter_base", "broadcast", None]
        )
    )
    assert assign_by_rules(kernels, RULES).get_column("role").to_list() == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "collective",
        "collective",
    ]


def test_any_name_is_searched_quickly_enough_to_end() -> None:
    """A pattern that makes other engines search for ever ends here."""
    rules = Rules(rule=(KernelRule(name="slow", pattern="(a+)+b", role="r"),))
    found = assign_by_rules(named(["a" * 100_000, "aab"]), rules)
    assert found.get_column("role").to_list() == [None, "r"]


def placed(regions: list[str | None], **columns: object) -> pl.DataFrame:
    """Kernels of one layer and stream with these regions, told by a rule."""
    by = [region and f"rule {region}" for region in regions]
    return named([f"k{i}" for i in range(len(regions))]).with_columns(
        region=pl.Series(regions, dtype=pl.String),
        assigned_by=pl.Series(by, dtype=pl.String),
        role=pl.lit(None, pl.String),
        layer=pl.lit(0, pl.Int64),
        **{name: pl.lit(value) for name, value in columns.items()},
    )


def filled(kernels: pl.DataFrame) -> list[tuple[str, str]]:
    """Region and assigned_by after `fill_between`."""
    return fill_between(kernels, RULES).select("region", "assigned_by").rows()


def test_between_two_of_one_region() -> None:
    """What lies between two kernels of one region is of it, the rest unassigned."""
    assert filled(
        placed([None, "moe", None, None, None, None, "moe", None, "mlp"])
    ) == [
        ("unassigned", "nothing"),
        ("moe", "rule moe"),
        *[("moe", "neighbours")] * 4,
        ("moe", "rule moe"),
        ("unassigned", "nothing"),
        ("mlp", "rule mlp"),
    ]


def test_between_ends_with_stream_and_layer() -> None:
    """A kernel of another stream or layer is no neighbour."""
    kernels = placed(["moe", None, "moe"])
    for column in ("stream", "layer", "step"):
        moved = kernels.with_columns(pl.Series(column, [0, 1, 0], dtype=pl.Int64))
        assert filled(moved)[1] == ("unassigned", "nothing")
    apart = kernels.with_columns(stream=pl.Series([1, 2, 1], dtype=pl.Int64))
    assert fill_between(apart, RULES).get_column("name").to_list() == ["k0", "k1", "k2"]


def test_few_are_filled_outside_of_layers() -> None:
    """Without a layer, more than three in a row may hide another region."""
    outside = pl.lit(None, pl.Int64)
    three = placed(["moe", None, None, None, "moe"]).with_columns(layer=outside)
    four = placed(["moe", None, None, None, None, "moe"]).with_columns(layer=outside)
    assert filled(three)[1:4] == [("moe", "neighbours")] * 3
    assert filled(four)[1:5] == [("unassigned", "nothing")] * 4


def test_a_range_of_several_regions_counts_last() -> None:
    """What an attention module holds is attention's where nothing else told it."""
    kernels = placed(["o_proj_all_reduce", None, None]).with_columns(
        range_region=pl.Series(["attention", "attention", None]),
        range_rule=pl.Series(["range attention-module"] * 2 + [None]),
    )
    assert filled(kernels) == [
        ("o_proj_all_reduce", "rule o_proj_all_reduce"),
        ("attention", "range attention-module"),
        ("unassigned", "nothing"),
    ]


def test_what_is_apart_is_no_neighbour() -> None:
    """A kernel between copies to and from the host is not of their region."""
    names = ["Memcpy HtoD", "add_parallel", "Memcpy DtoH"]
    kernels = assign_by_rules(named(names), RULES)
    for layer in (None, 0):
        found = kernels.with_columns(layer=pl.lit(layer, pl.Int64))
        assert filled(found) == [
            ("other", "rule host-copy"),
            ("unassigned", "nothing"),
            ("other", "rule host-copy"),
        ]


def test_what_is_apart_hides_no_neighbour() -> None:
    """A copy in the midst of a region changes nothing of what is around it."""
    kernels = placed(["moe", None, "other", None, "moe"]).with_columns(
        assigned_by=pl.Series(["rule x", None, "rule host-copy", None, "rule x"])
    )
    regions = [region for region, _ in filled(kernels)]
    assert regions == ["moe", "moe", "other", "moe", "moe"]


def test_collectives_are_not_filled() -> None:
    """An all-gather between two of one region is not of it; an all-reduce is."""
    gather, reduce = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_AllReduce_Sum"
    for name, region in ((gather, "unassigned"), (reduce, "moe")):
        ruled = assign_by_rules(named(["a", name, "b"]), RULES)
        kernels = placed(["moe", None, "moe"]).with_columns(ruled["name", "role"])
        assert filled(kernels)[1][0] == region
