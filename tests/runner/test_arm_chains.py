import polars as pl
import pytest

from layerscope.graphs.skeleton import Stage
from layerscope.runner.arm_chains import chain_of
from layerscope.schema import KERNELS, empty
from tests import handmade

PASS = (
    ("attention", "norm", None, 1_000),
    ("attention", "qkv", None, 4_000),
    ("attention", "attend", "mix", 7_000),
    ("moe", "router", None, 1_000),
    ("moe", "up", "gate_up", 6_000),
    ("moe", "down", None, 3_500),
)


def kernels(*passes: tuple[tuple[str, str, str | None, int], ...]) -> pl.DataFrame:
    """A head of one kernel, then `passes` of one replay, one kernel after another."""
    launch = {column: 1 for column in KERNELS if column.startswith(("grid", "block"))}
    rows: list[dict[str, object]] = []
    head = (("other", "head", None, 500),)
    for index, listed in enumerate((head, *passes), start=-1):
        for place, (region, name, role, duration_ns) in enumerate(listed):
            rows.append(
                launch
                | {"arm": "fused", "experiment": "captured", "capture": 0, "round": 0}
                | {"replay": 0, "pass_index": index, "node": len(rows)}
                | {"kind": "kernel", "name": name, "region": region, "role": role}
                | {"stream": 7, "pass_start_ns": index * 10**5}
                | {"start_ns": place * 10**4, "duration_ns": duration_ns}
                | {"registers": 32, "static_shared_bytes": 0}
                | {"dynamic_shared_bytes": 0}
            )
    return pl.DataFrame(rows, schema=KERNELS)


def test_bytes_go_to_kernels_by_their_time_beyond_the_shortest() -> None:
    """Regions close to the byte; the first product of the MoE needs the routing."""
    required = {"attention": 9_001, "moe": 750, "mlp": 5}
    assert chain_of(kernels(PASS, PASS, PASS), required) == (
        Stage(name="norm", region="attention", bytes=0),
        Stage(name="qkv", region="attention", bytes=3_000),
        Stage(name="mix", region="attention", bytes=6_001),  # what is left over too
        Stage(name="router", region="moe", bytes=0),
        Stage(name="gate_up", region="moe", bytes=500, needs_routing=True),
        Stage(name="down", region="moe", bytes=250),
    )


def test_the_first_kernel_that_reads_much_of_the_experts_needs_the_routing() -> None:
    """Also where the second product takes longer; a router, however slow, does not."""
    listed = (
        ("moe", "norm", None, 1_000),
        ("moe", "router", None, 3_000),
        ("moe", "up", None, 6_000),
        ("moe", "down", None, 12_000),
    )
    chain = chain_of(kernels(listed, listed), {"moe": 1_800})
    assert [stage.bytes for stage in chain] == [0, 200, 500, 1_100]
    assert [stage.name for stage in chain if stage.needs_routing] == ["up"]


def test_durations_are_medians_and_odd_passes_do_not_count() -> None:
    """A slow outlier moves no byte, nor does a pass with other kernels."""
    slow = tuple((*kernel[:3], 50 * kernel[3]) for kernel in PASS[::-1])
    outlier = (*PASS[:1], ("attention", "qkv", None, 900_000), *PASS[2:])
    chain = chain_of(kernels(PASS, outlier, slow, PASS), {"attention": 9_000})
    assert [stage.bytes for stage in chain] == [0, 3_000, 6_000, 0, 0, 0]


@pytest.mark.parametrize("region", ["mlp", "moe"])
def test_a_region_of_equally_long_kernels_reads_first(region: str) -> None:
    """All bytes go to its first kernel; only experts need a routing."""
    alike = ((region, "up", None, 2_000), (region, "down", None, 2_000))
    is_moe = region == "moe"
    assert chain_of(kernels(alike, alike), {region: 64}) == (
        Stage(name="up", region=region, bytes=64, needs_routing=is_moe),
        Stage(name="down", region=region, bytes=0),
    )


def test_an_arm_of_a_run_has_the_chain_that_it_ran() -> None:
    """Three kernels, one a region: each reads what its region must."""
    own = handmade.kernels().filter(pl.col("arm") == "fused")
    chain = chain_of(own, {"attention": 3, "o_proj_all_reduce": 2, "moe": 1})
    assert [(stage.region, stage.name, stage.bytes) for stage in chain] == [
        ("attention", "attend", 3),
        ("o_proj_all_reduce", "project", 2),
        ("moe", "experts", 1),
    ]


def test_no_kernels_are_no_chain() -> None:
    """An arm that was not recorded has none."""
    assert chain_of(empty(KERNELS), {"moe": 1}) == ()
