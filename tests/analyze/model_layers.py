"""Layers of models as their kernels' names show them, each kernel with its truth.

A kernel is (name, region, role). Names are those of real traces, cut after what tells
one from another; the truth is a reading of the model's code. A step is `begin`, `layer`
several times, `end`.
"""

from typing import Final, NamedTuple, TypeAlias

Kernel: TypeAlias = tuple[str, str | None, str | None]


class Model(NamedTuple):
    """One step of a model."""

    begin: tuple[Kernel, ...]
    layer: tuple[Kernel, ...]
    end: tuple[Kernel, ...]


ATTENTION, O_PROJ, MOE, MLP = "attention", "o_proj_all_reduce", "moe", "mlp"
OTHER = "other"

TENSILE: Final = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256"
CK_NORM: Final = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipeline"
AITER_NORM: Final = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16E"
XMMA: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
NATIVE: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::"
LAMBDA: Final = "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
COPY: Final = f"{NATIVE}direct_copy_kernel_cuda{LAMBDA}{{lambda(c10::BFloat16)#1}}>"
TO_FLOAT: Final = f"{NATIVE}direct_copy_kernel_cuda{LAMBDA}{{lambda(float)#1}}>"
TO_BFLOAT: Final = f"{NATIVE}bfloat16_copy_kernel_cuda{LAMBDA}{{lambda(float)#1}}>"
ADD: Final = f"{NATIVE}CUDAFunctor_add<c10::BFloat16> >"
MUL: Final = (
    f"{NATIVE}BinaryFunctor<c10::BFloat16, binary_internal::MulFunctor<float> >"
)
GATHER: Final = "void at::native::vectorized_gather_kernel<16, long>(char*, char*)"
DTOD: Final = "Memcpy DtoD (Device -> Device)"

SGLANG_QWEN3: Final = Model(
    begin=(
        ("create_flashinfer_kv_indices_triton", OTHER, "metadata"),
        (GATHER, OTHER, "embedding"),
    ),
    layer=(
        (AITER_NORM, ATTENTION, "norm"),
        (TENSILE, ATTENTION, "qkv"),
        (COPY, ATTENTION, "elementwise"),
        (AITER_NORM, ATTENTION, "qk_norm"),
        (COPY, ATTENTION, "elementwise"),
        (AITER_NORM, ATTENTION, "qk_norm"),
        ("void rotary_embedding_kernel<c10::BFloat16, true>", ATTENTION, "rope"),
        ("void store_kvcache<2048l, 4, false, long>", ATTENTION, "kv_write"),
        ("void paged_attention_ll4mi_QKV_mfma16_kernel<0>", ATTENTION, "core"),
        ("void paged_attention_ll4mi_reduce_kernel<128>", ATTENTION, "merge"),
        (TENSILE, O_PROJ, "o_proj"),
        (AITER_NORM, O_PROJ, "norm"),
        (TENSILE, MLP, "gate_up"),
        ("_ZN7sgl_hip10activation18act_and_mul_kernelI14", MLP, "activation"),
        (TENSILE, MLP, "down"),
    ),
    end=(
        (AITER_NORM, OTHER, "final_norm"),
        (TENSILE, OTHER, "lm_head"),
        (f"{NATIVE}bfloat16tofloat32_copy_kernel_cuda", OTHER, "convert"),
        ("void at::native::reduce_kernel<at::native::ArgMaxOps>", OTHER, "sampling"),
    ),
)
"""SGLang, Qwen3-8B, decode, MI300X; the layers are replayed by a graph."""

VLLM_GPT_OSS: Final = Model(
    begin=(("triton_poi_fused_0", None, "elementwise"),),
    layer=(
        (CK_NORM, ATTENTION, "norm"),
        (TENSILE, ATTENTION, "qkv"),
        ("triton_poi_fused__to_copy_1", ATTENTION, "elementwise"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16>", ATTENTION, "rope"),
        ("void vllm::reshape_and_cache_flash_kernel<__hip>", ATTENTION, "kv_write"),
        ("kernel_unified_attention_3d", ATTENTION, "core"),
        ("reduce_segments", ATTENTION, "merge"),
        (TENSILE, O_PROJ, "o_proj"),
        (CK_NORM, O_PROJ, "norm"),
        (TENSILE, MOE, "router"),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", MOE, "elementwise"),
        ("_topk_forward", MOE, "routing"),
        ("_sum_bitmatrix_rows", MOE, "routing"),
        ("_combined_routing_memset", MOE, "routing"),
        ("_combined_routing_compute", MOE, "routing"),
        (
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
            MOE,
            "gate_up+activation",
        ),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", MOE, "experts"),
        ("_finalize_matmul_scatter_bf16", MOE, "combine"),
    ),
    end=(
        (CK_NORM, OTHER, "final_norm"),
        (COPY, OTHER, "elementwise"),
        (GATHER, OTHER, "gather"),
        (TENSILE, OTHER, "lm_head"),
    ),
)
"""vLLM, gpt-oss-120b, decode, MI300X; one graph."""

VLLM_TENSOR_PARALLEL: Final = Model(
    begin=(
        ("Memcpy HtoD (Pinned -> Device)", OTHER, "transfer"),
        ("_copy_page_indices_kernel", OTHER, "metadata"),
        (GATHER, OTHER, "embedding"),
        (DTOD, OTHER, "copy"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", OTHER, "all_reduce"),
        (DTOD, OTHER, "copy"),
    ),
    layer=(
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", ATTENTION, "norm"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", ATTENTION, "qkv"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16>", ATTENTION, "rope"),
        (COPY, ATTENTION, "elementwise"),
        ("void vllm::scaled_fp8_quant_kernel_strided<c10>", ATTENTION, "quantise"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv>", ATTENTION, "kv_write"),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal", ATTENTION, "core"),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", O_PROJ, "o_proj"),
        (DTOD, O_PROJ, "copy"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", O_PROJ, "all_reduce"),
        (DTOD, O_PROJ, "copy"),
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", O_PROJ, "norm"),
        ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", MOE, "router"),
        (f"{NATIVE}FillFunctor<c10::BFloat16> >", MOE, "fill"),
        (COPY, MOE, "elementwise"),
        ("void tensorrt_llm::kernels::quantize_with_block_size<2>", MOE, "quantise"),
        ("void moe::dev::routing::routingIndicesScoresKernel<>", MOE, "routing"),
        ("void moe::dev::routing::routingIndicesHistogramKernel<>", MOE, "routing"),
        ("void moe::dev::routing::routingIndicesOffsetsKernel<>", MOE, "routing"),
        (
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_clmp_swiGlu_dynBatch",
            MOE,
            "gate_up+activation",
        ),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_tmaOpt_clmp_dynBatch", MOE, "experts"),
        ("void moe::dev::finalize::finalizeKernelVecLoad<>", MOE, "combine"),
        (DTOD, MOE, "copy"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", MOE, "all_reduce"),
        (DTOD, MOE, "copy"),
    ),
    end=(
        ("void vllm::fused_add_rms_norm_kernel<c10>", OTHER, "final_norm"),
        ("void at::native::index_elementwise_kernel<128, 4>", OTHER, "gather"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", OTHER, "lm_head"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", OTHER, "all_gather"),
    ),
)
"""vLLM, gpt-oss-120b, eager, one of several B200."""


def _eager_norm(region: str) -> tuple[Kernel, ...]:
    """An RMS norm as PyTorch runs it, one operation after the other."""
    names = (
        TO_FLOAT,
        f"{NATIVE}pow_tensor_scalar_kernel_impl<float, float>",
        "void at::native::reduce_kernel<512, 1, at::native::MeanOps<float> >",
        f"{NATIVE}CUDAFunctorOnSelf_add<float> >",
        f"{NATIVE}rsqrt_kernel_cuda",
        MUL,
        TO_BFLOAT,
        MUL,
    )
    return tuple((name, region, "norm") for name in names)


TRANSFORMERS_QWEN: Final = Model(
    begin=(("void indexSelectLargeIndex<c10::BFloat16, long>", OTHER, "embedding"),),
    layer=(
        *_eager_norm(ATTENTION),
        ("Memset (Device)", ATTENTION, "fill"),
        (XMMA, ATTENTION, "qkv"),
        (XMMA, ATTENTION, "qkv"),
        (XMMA, ATTENTION, "qkv"),
        (MUL, ATTENTION, "elementwise"),
        (
            "void at::native::CatArrayBatchedCopy<unsigned int>",
            ATTENTION,
            "elementwise",
        ),
        (ADD, ATTENTION, "add"),
        (COPY, ATTENTION, "elementwise"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash>", ATTENTION, "core"),
        (COPY, ATTENTION, "elementwise"),
        ("Memset (Device)", O_PROJ, "fill"),
        (XMMA, O_PROJ, "o_proj"),
        (ADD, O_PROJ, "add"),
        *_eager_norm(O_PROJ),
        ("Memset (Device)", MLP, "fill"),
        (XMMA, MLP, "gate_up"),
        (f"{NATIVE}silu_kernel", MLP, "activation"),
        ("Memset (Device)", MLP, "fill"),
        (XMMA, MLP, "gate_up"),
        (MUL, MLP, "elementwise"),
        ("Memset (Device)", MLP, "fill"),
        (XMMA, MLP, "down"),
        (ADD, MLP, "add"),
    ),
    end=(
        *((name, OTHER, "final_norm") for name, _, _ in _eager_norm(OTHER)),
        (XMMA, OTHER, "lm_head"),
    ),
)
"""Transformers, Qwen1.5-0.5B, prefill, H100."""

FUSED: Final = "void tensorrt_llm::allreduce_fusion_kernel_oneshot_lamport<1>"
DEEP_GEMM: Final = "void deep_gemm::sm100_fp8_gemm_1d1d_impl<(deep_gemm::GemmType)"
QUANTISE: Final = "void per_token_group_quant_8bit_kernel<c10::BFloat16>"

TRTLLM_DEEPSEEK: Final = Model(
    begin=(
        (GATHER, OTHER, "embedding"),
        ("void flashinfer::norm::RMSNormKernel<8u>", ATTENTION, "norm"),
    ),
    layer=(
        ("void fused_a_gemm_kernel<1, 2112, 7168>", ATTENTION, "qkv"),
        ("void flashinfer::norm::RMSNormKernel<8u>", ATTENTION, "norm"),
        (QUANTISE, ATTENTION, "quantise"),
        (f"{DEEP_GEMM}0>", ATTENTION, "gemm"),
        ("void applyMLARopeAndAssignQKVKernelGeneration<>", ATTENTION, "rope"),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16HQk576HV512", ATTENTION, "core"),
        ("nvjet_tst_64x8_64x16_1x1_h_bz_TNT", ATTENTION, "gemm"),
        (QUANTISE, O_PROJ, "quantise"),
        (f"{DEEP_GEMM}0>", O_PROJ, "o_proj"),
        (FUSED, O_PROJ, "all_reduce+norm"),
        ("void router_gemm_kernel_float_output<1>", MOE, "router"),
        ("void tensorrt_llm::kernels::deepseek_v3_topk_kernel<>", MOE, "routing"),
        (QUANTISE, MOE, "quantise"),
        (f"{DEEP_GEMM}0>", MOE, "gemm"),
        ("void flashinfer::activation::act_and_mul_kernel<>", MOE, "activation"),
        (f"{DEEP_GEMM}0>", MOE, "gemm"),
        (f"{DEEP_GEMM}2>", MOE, "experts"),
        ("void finalizeMoeRoutingKernel<>", MOE, "combine"),
        (FUSED, MOE, "all_reduce+norm"),
    ),
    end=(
        (GATHER, OTHER, "gather"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", OTHER, "lm_head"),
    ),
)
"""Latent attention, a shared expert, all-reduces fused with norms: as TensorRT-LLM runs
DeepSeek V3. Of what is fused after the experts most is all-reduce, so it is theirs."""

LINEAR_ATTENTION: Final = Model(
    begin=(("triton_poi_fused_embedding_0", OTHER, "embedding"),),
    layer=(
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", ATTENTION, "norm"),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", ATTENTION, "qkv"),
        ("_causal_conv1d_update_kernel", ATTENTION, "linear_core"),
        ("fused_gdn_gating_kernel", ATTENTION, "linear_core"),
        ("fused_recurrent_gated_delta_rule_fwd_kernel", ATTENTION, "linear_core"),
        ("layer_norm_fwd_kernel", ATTENTION, "norm"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", O_PROJ, "o_proj"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", O_PROJ, "gemm_part"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16>", O_PROJ, "all_reduce"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", O_PROJ, "norm"),
        ("nvjet_tst_64x8_64x16_1x4_h_bz_TNT", MOE, "router"),
        ("void vllm::moe::topkGating<8, 512, 4, 16, 32>", MOE, "routing"),
        ("void vllm::moe::moe_align_block_size_kernel<int>", MOE, "routing"),
        ("fused_moe_kernel", MOE, "experts"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16>", MOE, "activation"),
        ("fused_moe_kernel", MOE, "experts"),
        ("void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>", MOE, "combine"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16>", MOE, "all_reduce"),
    ),
    end=(
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", OTHER, "final_norm"),
        (GATHER, OTHER, "gather"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", OTHER, "lm_head"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", OTHER, "all_gather"),
        ("_topk_topp_kernel", OTHER, "sampling"),
    ),
)
"""Gated delta nets with a norm of their own before the projection, as in Qwen3-Next."""

NO_ACTIVATION: Final = Model(
    begin=((GATHER, OTHER, "embedding"),),
    layer=(
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8>", ATTENTION, "norm"),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", ATTENTION, "qkv"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd>", ATTENTION, "core"),
        ("void flash::flash_fwd_splitkv_combine_kernel<Flash>", ATTENTION, "merge"),
        (COPY, ATTENTION, "elementwise"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", O_PROJ, "o_proj"),
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8>", O_PROJ, "norm"),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_relu_TNT", MLP, "gemm"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", MLP, "gemm"),
    ),
    end=(),
)
"""The activation is part of a product, so that no name tells the feed-forward. The last
layer cannot be told without what follows it."""
