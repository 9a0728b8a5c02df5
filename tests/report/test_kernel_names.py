import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.report.kernel_names import LENGTH, short_kernel_name

CUTLASS = "void cutlass::device_kernel<flash::enable_sm90<flash::FwdSm90<true> > >(int)"
COPY = "at::native::copy_cuda(at::TensorIteratorBase&)::{lambda()#3}"
FUSED = "void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_matmul_ogs_NNT_bf16", "_matmul_ogs_NNT_bf16"),
        ("Memcpy HtoD (Host -> Device)", "Memcpy HtoD (Host -> Device)"),
        ("Cijk_Alik_Bljk_BBS_BH.kd", "Cijk_Alik_Bljk_BBS_BH"),
        ("ncclDevKernel_AllReduce(ncclArgs<4096ul>)", "ncclDevKernel_AllReduce"),
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8>(int)", "rms_norm_kernel"),
        (CUTLASS, "device_kernel<FwdSm90>"),
        ("void cutlass::Kernel2<sgemm_nn>(sgemm_nn::Params)", "Kernel2<sgemm_nn>"),
        (
            f"void at::native::unrolled<4, at::native::gpu_kernel_impl<{COPY}> >",
            "unrolled<copy_cuda>",
        ),
        (
            "void (anonymous namespace)::multimem_all_reduce<c10::BFloat16, 16>(int)",
            "multimem_all_reduce",
        ),
        (
            f"std::enable_if<((8)>(0))&&vllm::_typeConvert<int>::exists, {FUSED}",
            "fused_add_rms_norm_kernel",
        ),
        ("at::native::<unnamed>::softmax_warp<float, 2>(int)", "softmax_warp"),
        (
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_4PipeEEEEEvv",
            "kentry<Rmsnorm2dFwd>",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256EEEvPT0_", "add_rmsnorm_"),
        ("_Z6vecAddPf", "vecAdd"),
        ("_Zodd", "_Zodd"),
        ("_ZN99999short", "_ZN99999short"),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    """Types, parameters and namespaces are cut; what tells kernels apart stays."""
    found = short_kernel_name(name)
    assert found.startswith(short) if short.endswith("_") else found == short


def test_long_names_are_cut() -> None:
    """No name is longer than asked for; a cut one says so."""
    assert short_kernel_name("nvjet_tst_144x128", 10) == "nvjet_tst…"


@given(st.text(alphabet="_ZNISK019aB:<>(), {}", max_size=60))
def test_any_name_has_a_short_one(name: str) -> None:
    """Whatever a file calls a kernel is shown, as something short."""
    found = short_kernel_name(name)
    assert len(found) <= LENGTH
    assert bool(found) == bool(name)
