"""From traces to placed kernels: the layers that real models have."""

from dataclasses import dataclass

import polars as pl
import pytest

from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.layer_finder import NOT_TOLD, NOTHING_REPEATS
from layerscope.analyze.placing import PlacedTrace, place, place_trace
from layerscope.ingest.read import ReadOptions, read_trace
from layerscope.schema import PLACED_KERNELS, conform
from layerscope.trace import Trace, TraceSource
from tests.analyze.planted import calls, plain, ranges, rows
from tests.ingest.real_traces import real_trace


def placed(name: str) -> PlacedTrace:
    """A real trace, placed."""
    trace = read_trace(real_trace(name), ReadOptions(cache=False))
    return place_trace(trace, load_rules())


@dataclass(frozen=True)
class Layers:
    """What is known of a real trace."""

    kind: str  # of its only step
    variants: dict[str, tuple[int, int]]  # layers and kernels in each
    first: str  # how the name of the first layer's first kernel begins
    after: str  # that of the first kernel after the last layer


NORM = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwd"
KNOWN = {
    # gpt-oss 20B: full and sliding attention in turn, no add in the first layer
    "TraceLens/vllm_decode_full_graph_execution.json.gz": Layers(
        "decode", {"A": (12, 18), "B": (11, 17), "C": (1, 16)}, NORM, NORM
    ),
    "TraceLens/vllm_prefilldecode_piecewise_graph_execution.json.gz": Layers(
        "mixed", {"A": (23, 17), "B": (1, 16)}, NORM, NORM
    ),
    # gpt-oss 120B
    "TraceLens/b200_eager_trace.json.gz": Layers(
        "prefill",
        {"A": (18, 25), "B": (17, 25), "C": (1, 25)},
        "void vllm::rms_norm_kernel",
        "std::enable_if",
    ),
    "TraceLens/sglang_Qwen3-8B_decode.json.gz": Layers(
        "decode",
        {"A": (35, 15), "B": (1, 15)},
        "_ZN5aiter24add_rmsnorm_quant_kernel",
        "_ZN5aiter24add_rmsnorm_quant_kernel",
    ),
    "TraceLens/h100_Qwen1.5-0.5B-Chat.json.gz": Layers(
        "unknown",
        {"A": (24, 49)},
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy",
    ),
    "TraceLens/mi300_Qwen1.5-0.5B-Chat.json.gz": Layers(
        "unknown",
        {"A": (24, 43)},
        "void at::native::elementwise_kernel<512",
        "void at::native::elementwise_kernel<512",
    ),
    "TraceLens/h100_bert-small-uncased.json.gz": Layers(
        "unknown", {"A": (4, 12)}, "void cutlass::Kernel2", "void cutlass::Kernel2"
    ),
    "TraceLens/mi300_bert-small-uncased.json.gz": Layers(
        "unknown", {"A": (4, 12)}, "Cijk_", "Cijk_"
    ),
    # llama.cpp: three layers of linear attention to one of full attention, and
    # matrices of several formats
    "rocprof-unified-viewer/prefill_kernel_trace.csv": Layers(
        "unknown",
        {
            "A": (12, 37),
            "B": (12, 37),
            "C": (3, 29),
            "D": (2, 29),
            "E": (2, 29),
            "F": (1, 29),
        },
        "void rms_norm_f32<1024",
        "void rms_norm_f32<1024",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_layers_of_real_models(name: str) -> None:
    """As many layers as the model has, each from its input norm on."""
    known, found = KNOWN[name], placed(name)
    assert (found.steps, found.without_layers) == (1, {})
    inside = found.kernels.filter(pl.col("step").is_not_null())
    assert inside["step_kind"].unique().to_list() == [known.kind]
    layers = inside.drop_nulls("layer").group_by("layer", "variant").len("kernels")
    assert sorted(layers["layer"]) == list(range(layers.height))
    variants = layers.group_by("variant").agg(pl.len(), pl.col("kernels").unique())
    assert {
        variant: (count, *kernels) for variant, count, kernels in variants.rows()
    } == known.variants
    names, numbers = inside["name"].to_list(), inside["layer"].to_list()
    assert names[numbers.index(0)].startswith(known.first)
    after = len(numbers) - numbers[::-1].index(layers.height - 1)
    assert names[after].startswith(known.after)


@pytest.mark.parametrize(
    ("name", "layers", "cut"),
    [
        # two devices; their ends are 114 or 122, and 54 or 55 kernels of 157
        ("nsys-ai/mfu_2gpu_after.sqlite", 14, {(0, 0): 2, (1, 0): 2}),
        ("nsys-ai/mfu_2gpu_before.sqlite", 16, {(0, 0): 1, (1, 0): 1}),
        ("rocprof-unified-viewer/decode_kernel_trace.csv", 6, {}),
        *((name, sum(count for count, _ in known.variants.values()), {})
          for name, known in KNOWN.items()),
    ],
)  # fmt: skip
def test_layers_cut_by_the_ends(
    name: str, layers: int, cut: dict[tuple[int | None, int], int]
) -> None:
    """A part of a layer at an end of the trace is none; odd whole ones are layers."""
    found = placed(name)
    assert found.cut == cut
    layered = found.kernels.drop_nulls("layer")
    counts = layered.group_by("device").agg(pl.col("layer").n_unique())
    assert counts["layer"].unique().to_list() == [layers]
    if cut:
        sizes = layered.group_by("device", "layer").len()
        assert sizes["len"].unique().to_list() == [157]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TraceLens/mi210_gpu_only_trace.json.gz", NOTHING_REPEATS),
        ("kineto/tb_resnet50_old_worker0.pt.trace.json.gz", NOTHING_REPEATS),
        ("nsys-ai/healthy_1pct.v2.sqlite", NOT_TOLD),
    ],
)
def test_traces_without_layers(name: str, reason: str) -> None:
    """Convolutions in training, and kernels that only repeat, are no decoder layers."""
    found = placed(name)
    assert found.without_layers == {reason: found.steps}
    assert found.kernels["layer"].null_count() == found.kernels.height


@pytest.mark.parametrize(
    "name",
    [
        "HolisticTraceAnalysis/critical_path_alexnet_trace.json.gz",
        "JACC.jl/3648722_results.pftrace",
    ],
)
def test_traces_without_steps(name: str) -> None:
    """Where nothing tells steps, the whole device is none: it may be many, or half."""
    found = placed(name)
    assert (found.steps, found.without_layers) == (0, {NOTHING_REPEATS: 0})
    steps = found.kernels.select("step", "step_kind")
    assert steps.null_count().row(0) == (steps.height, steps.height)


def test_a_replay_of_what_is_no_layer() -> None:
    """Two products again and again in one graph are no 20 layers."""
    names = ["gemm_0", "gemm_1"] * 20
    made = calls({"name": "cudaGraphLaunch", "start_ns": 0, "correlation": 3})
    source = TraceSource(path="a.json", format="Kineto JSON")
    trace = Trace(
        source, rows(names, correlation=3).drop("region", "role"), made, ranges()
    )
    found = place_trace(trace, load_rules())
    assert (found.steps, found.without_layers) == (1, {NOT_TOLD: 1})
    assert found.kernels["layer"].null_count() == 40


def test_decode_without_steps() -> None:
    """Layers of linear attention, cut out of a trace without any ranges."""
    found = placed("rocprof-unified-viewer/decode_kernel_trace.csv").kernels
    firsts = found.filter(pl.col("position") == 0)["name"].str.slice(0, 22)
    assert firsts.to_list() == [
        "scale_f32(float const*",
        *["void rms_norm_f32<1024"] * 5,
    ]


def test_frame() -> None:
    """Whatever comes in, out come placed kernels in the order of devices and time."""
    names, _, _ = plain(6).kernels()
    kernels = rows(names, device=[1, *[0] * (len(names) - 1)])
    trace = Trace(
        TraceSource(path="x.json", format="Kineto JSON"),
        kernels.drop("region", "role"),
        calls(),
        ranges(),
    )
    found = place(trace, load_rules())
    conform(found, PLACED_KERNELS, what="placed")
    assert found["name"].to_list() == [*names[1:], names[0]]


def test_nothing() -> None:
    """A trace of no kernels has none placed."""
    empty = rows([]).drop("region", "role")
    source = TraceSource(path="x.json", format="Kineto JSON")
    found = place_trace(Trace(source, empty, calls(), ranges()), load_rules())
    assert found.kernels.is_empty()
    assert (found.steps, found.without_layers) == (0, {})
