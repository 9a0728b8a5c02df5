import msgspec
import polars as pl
import pytest

from layerscope.analyze.kernel_rules import Rules, load_rules
from layerscope.analyze.trace_regions import assign_by_rules
from layerscope.analyze.trace_sequences import assign_by_sequences
from tests.analyze.named_kernels import named

RULES = load_rules()
GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgs)"
NORM = "void vllm::rms_norm_kernel<>"
BEFORE_CORE = [NORM, "nvjet_qkv", "flash_fwd_kernel"]
LAYER = [*BEFORE_CORE, "nvjet_o", NORM, "nvjet_gate_up", "silu_and_mul", "nvjet_down"]


def assigned(kernels: pl.DataFrame) -> pl.DataFrame:
    """What names and then the order of `kernels` tell."""
    return assign_by_sequences(assign_by_rules(kernels, RULES), RULES)


def test_another_stream_is_not_in_a_stretch() -> None:
    """What other streams run in the midst of a layer gets no region and takes none."""
    names = [*LAYER, *LAYER]
    alone = assigned(named(names))
    for beside in (GENERIC, "ncclDevKernel_AllReduce_Sum_bf16", "nvjet_x", NORM):
        for place in range(1, len(names), 3):
            both = named([*names[:place], beside, *names[place:]]).with_columns(
                stream=pl.when(pl.int_range(pl.len()) == place).then(9).otherwise(7)
            )
            found = assigned(both)
            rest = found.filter(pl.col("stream") == 7)
            assert rest["region"].to_list() == alone["region"].to_list()
            assert rest["role"].to_list() == alone["role"].to_list()
            assert found["region"][place] is None


FREE = (
    GENERIC,
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "ncclDevKernel_SendRecv(ncclDevKernelArgs)",
)


@pytest.mark.parametrize("collective", FREE)
def test_order_tells_of_collectives_only_all_reduces(collective: str) -> None:
    """On the stream of the layer, too, others have no region, and divide nothing."""
    names = [*LAYER, *LAYER]
    alone = assigned(named(names))["region"].to_list()
    for place in range(1, len(names)):
        found = assigned(named([*names[:place], collective, *names[place:]]))["region"]
        assert found.to_list() == [*alone[:place], None, *alone[place:]]


def test_an_all_reduce_is_told_by_order() -> None:
    """One after the projection is o-proj + all-reduce, by name or by parameters."""
    kernels = named([*LAYER[:4], GENERIC, *LAYER[4:]]).with_columns(
        collective=pl.when(pl.int_range(pl.len()) == 4).then(pl.lit("allreduce"))
    )
    found = assigned(kernels)
    assert found.select("region", "role").row(4) == ("o_proj_all_reduce", "all_reduce")


def test_a_sequence_may_tell_collectives() -> None:
    """One that says so tells those that are no all-reduces."""
    around = {"after": ["attention"], "before": ["attention"], "region": "r"}
    for collectives, region in ((False, None), (True, "r")):
        table = {"sequence": [{"name": "s", "collectives": collectives} | around]}
        rules = msgspec.convert(table, Rules)
        kernels = named(["flash_fwd_kernel", GENERIC, "flash_fwd_kernel"])
        found = assign_by_sequences(assign_by_rules(kernels, RULES), rules)
        assert found["region"].to_list() == ["attention", region, "attention"]
