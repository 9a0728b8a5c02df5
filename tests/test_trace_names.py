import polars as pl
import pytest

from layerscope.trace_names import COLLECTIVE, GRAPH_LAUNCH


def fits(name: str, pattern: str) -> bool:
    """Whether polars finds the pattern in the name."""
    return bool(pl.select(pl.lit(name).str.contains(pattern)).item())


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)",
        "rcclGenericKernel<1, false>",
        "mscclKernel_Sum_half_LL",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>",
        "void aiter::reduce_scatter_cross_device_store<4>",
        "multimem_one_shot_reduce",
        "void rmsNormLamport<8, __nv_bfloat16>",
        "void deep_ep::internode_ll::dispatch<false, false, 7168>",
        "nvshmemi_transfer_quiet",
        "mori::moe::EpDispatchIntraNodeKernel<bf16>",
        "low_latency_ep_combine",
        "moeAllToAllKernel",
    ],
)
def test_collectives_are_told_by_name(name: str) -> None:
    """Of libraries, and of engines that have their own."""
    assert fits(name, COLLECTIVE)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1>",
        "step_dispatch",
        "moe_permute",
        "gather_rows",
        "_merge_combine",
    ],
)
def test_kernels_of_one_device_are_none(name: str) -> None:
    """Reductions, gathers and dispatches within a device wait for no rank."""
    assert not fits(name, COLLECTIVE)


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"])
def test_launches_of_graphs_are_told_by_name(name: str) -> None:
    """Of CUDA's runtime and driver, and of HIP."""
    assert fits(name, GRAPH_LAUNCH)
    assert not fits("cudaLaunchKernel", GRAPH_LAUNCH)
