from typing import Any

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.kernel_rules import Rules, load_rules
from layerscope.analyze.trace_regions import assign_by_rules
from layerscope.analyze.trace_sequences import assign_by_sequences
from tests.analyze import model_layers
from tests.analyze.model_layers import Kernel, Model
from tests.analyze.named_kernels import named

RULES = load_rules()
MODELS = {
    "sglang": model_layers.SGLANG_QWEN3,
    "vllm": model_layers.VLLM_GPT_OSS,
    "tensor parallel": model_layers.VLLM_TENSOR_PARALLEL,
    "transformers": model_layers.TRANSFORMERS_QWEN,
    "deepseek": model_layers.TRTLLM_DEEPSEEK,
    "linear attention": model_layers.LINEAR_ATTENTION,
}


def told(names: list[str], *, step: int | None = 0) -> list[Kernel]:
    """What names and order say of kernels: name, region, role."""
    placed = assign_by_sequences(assign_by_rules(named(names, step=step), RULES), RULES)
    return placed.select("name", "region", "role").rows()


def differing(found: list[Kernel], truth: list[Kernel]) -> list[tuple[Kernel, Kernel]]:
    """Kernels that are not as they should be."""
    pairs = zip(found, truth, strict=True)
    return [(was, wanted) for was, wanted in pairs if was != wanted]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_step_of_three_layers(model: Model) -> None:
    """Every kernel of a step gets the region and role that the model's code shows."""
    truth = [*model.begin, *model.layer * 3, *model.end]
    assert differing(told([name for name, _, _ in truth]), truth) == []


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_middle_of_a_cut_trace(model: Model) -> None:
    """Where no step is known, all that lies between two cores is told the same."""
    truth = list(model.layer * 3)
    cores = [i for i, kernel in enumerate(truth) if (kernel[2] or "").endswith("core")]
    middle = slice(cores[0], cores[-1] + 1)
    found = told([name for name, _, _ in truth], step=None)
    assert differing(found[middle], truth[middle]) == []


def test_a_feed_forward_without_a_name_of_its_own() -> None:
    """From core to core the norms alone tell the feed-forward."""
    model = model_layers.NO_ACTIVATION
    truth = [*model.begin, *model.layer * 3]
    cores = [i for i, kernel in enumerate(truth) if kernel[2] == "core"]
    found = told([name for name, _, _ in truth])
    assert differing(found[: cores[-1] + 1], truth[: cores[-1] + 1]) == []


def test_the_cut_ends_of_a_trace_are_left_open() -> None:
    """Without a step, what comes before the first known kernel is not guessed."""
    names = ["nvjet_a", "void vllm::rms_norm_kernel<>", "nvjet_b", "fmhaSm100aKernel_x"]
    assert told([*names, "nvjet_c"], step=None) == [
        ("nvjet_a", None, "gemm"),
        ("void vllm::rms_norm_kernel<>", None, "norm"),
        ("nvjet_b", None, "gemm"),
        ("fmhaSm100aKernel_x", "attention", "core"),
        ("nvjet_c", None, "gemm"),
    ]


def test_steps_of_one_stretch_without_marks() -> None:
    """The end of a step and the begin of the next are told from one long stretch."""
    model = model_layers.SGLANG_QWEN3
    final = [*model.end[:2], *model.begin[1:]]  # no sampling between them
    truth = [*model.layer * 2, *final, *model.layer * 2]
    found = told([name for name, _, _ in truth], step=None)
    middle = slice(len(model.layer), -len(model.layer))
    assert differing(found[middle], truth[middle]) == []


def test_an_eager_mixture_of_experts_is_moe() -> None:
    """A top-k between norm and activation makes the feed-forward one of experts."""
    names = [
        "flash_fwd_kernel",
        "nvjet_o",
        "void vllm::rms_norm_kernel<>",
        "nvjet_router",
        "void at::native::sbtopk::gatherTopK<c10::BFloat16>",
        "void at::native::vectorized_gather_kernel<16>",
        "nvjet_up",
        "void at::native::silu_kernel",
        "nvjet_down",
        "void vllm::rms_norm_kernel<>",
        "nvjet_qkv",
        "flash_fwd_kernel",
    ]
    regions = [region for _, region, _ in told(names)]
    assert (
        regions
        == ["attention"] + ["o_proj_all_reduce"] * 2 + ["moe"] * 6 + ["attention"] * 3
    )


def test_what_runs_beside_a_layer_divides_nothing() -> None:
    """A copy to the host in the middle of a layer changes no other kernel's region."""
    layer = model_layers.SGLANG_QWEN3.layer
    copy = ("Memcpy DtoH (Device -> Host)", "other", "transfer")
    truth = [*layer, *layer[:12], copy, *layer[12:], *layer]
    found = told([name for name, _, _ in truth])
    assert differing(found[: -len(layer)], truth[: -len(layer)]) == []


def test_known_regions_stay() -> None:
    """A region that a range told is kept, and tells of its neighbours."""
    kernels = assign_by_rules(named(["nvjet_a", "nvjet_b", "nvjet_c"]), RULES)
    kernels = kernels.with_columns(
        region=pl.Series(["moe", None, "moe"]),
        assigned_by=pl.Series(["range moe", None, "range moe"]),
    )
    found = assign_by_sequences(kernels, RULES)
    assert found.select("region", "role", "assigned_by").rows() == [
        ("moe", "gemm", "range moe"),
        ("moe", "gemm", "sequence within-feed-forward"),
        ("moe", "gemm", "range moe"),
    ]


def test_a_range_tells_the_region_and_the_sequence_the_role() -> None:
    """A product in a module of the feed-forward is its router, as the order shows."""
    layer = model_layers.VLLM_GPT_OSS.layer
    truth = list(layer * 2)
    kernels = assign_by_rules(named([name for name, _, _ in truth]), RULES)
    place = next(i for i, kernel in enumerate(truth) if kernel[2] == "router")
    ranged = kernels.with_row_index().with_columns(
        region=pl.when(index=place).then(pl.lit("mlp")).otherwise("region"),
        assigned_by=pl.when(index=place)
        .then(pl.lit("range mlp"))
        .otherwise("assigned_by"),
    )
    found = assign_by_sequences(ranged.drop("index"), RULES)
    told = found.select("name", "region", "role").rows()
    assert differing(told[: len(layer)], truth[: len(layer)]) == []
    assert found["assigned_by"][place] == "sequence experts"


def test_frames_pass_through() -> None:
    """No column and no row is added, lost or moved; a frame may be empty."""
    kernels = assign_by_rules(named(["x", "flash_fwd_kernel", "y"]), RULES)
    found = assign_by_sequences(kernels.with_columns(mine=pl.lit(1)), RULES)
    told = ("region", "role", "assigned_by")
    assert_frame_equal(
        found.drop(told), kernels.with_columns(mine=pl.lit(1)).drop(told)
    )
    empty = kernels.clear()
    assert_frame_equal(assign_by_sequences(empty, RULES), empty)


def test_devices_and_steps_are_apart() -> None:
    """A kernel of another device or step tells nothing."""
    one = assign_by_rules(named(["flash_fwd_kernel", "x", "flash_fwd_kernel"]), RULES)
    steps = one.with_columns(step=pl.Series([0, 0, 1]))
    devices = one.with_columns(device=pl.Series([0, 0, 1]))
    for kernels in (steps, devices):
        found = assign_by_sequences(kernels, RULES)
        assert found.get_column("region").to_list() == ["attention", None, "attention"]
    within = assign_by_sequences(one, RULES).get_column("assigned_by").to_list()
    assert within[1] == "sequence within-attention"


NORM = "void vllm::rms_norm_kernel<>"
BEFORE_CORE = [NORM, "nvjet_qkv", "flash_fwd_kernel"]
LAYER = [*BEFORE_CORE, "nvjet_o", NORM, "nvjet_gate_up", "silu_and_mul", "nvjet_down"]


def assigned(kernels: pl.DataFrame) -> pl.DataFrame:
    """What names and then the order of `kernels` tell."""
    return assign_by_sequences(assign_by_rules(kernels, RULES), RULES)


@pytest.mark.parametrize("product", [model_layers.XMMA, model_layers.TENSILE])
@pytest.mark.parametrize("fill", [[], ["Memset (Device)"], [model_layers.DTOD]])
def test_ranges_change_no_role(product: str, fill: list[str]) -> None:
    """Gate and up have one role, down its own, whatever their module's range holds."""
    norm = [name for name, _, _ in model_layers.TRANSFORMERS_QWEN.layer[:8]]
    up = [*fill, product, f"{model_layers.NATIVE}silu_kernel", *fill, product]
    down = [model_layers.MUL, *fill, product, model_layers.ADD]
    layer = ["flash_fwd_kernel", product, *norm, *up, *down]
    kernels = assign_by_rules(named([*layer, *norm]), RULES).with_row_index("i")
    is_mlp = (pl.col("i") >= 10) & (pl.col("i") < len(layer) - 1)
    ranged = kernels.with_columns(
        region=pl.when(is_mlp).then(pl.lit("mlp")).otherwise("region"),
        assigned_by=pl.when(is_mlp).then(pl.lit("range mlp")).otherwise("assigned_by"),
    ).drop("i")
    found = assign_by_sequences(ranged, RULES)
    products = found.filter(pl.col("name") == product)["role"].to_list()
    assert products == ["o_proj", "gate_up", "gate_up", "down"]
    assert found["region"].to_list() == (
        ["attention"]
        + ["o_proj_all_reduce"] * 9
        + ["mlp"] * (len(layer) - 10)
        + ["other"] * 8
    )
    assert set(found["role"][len(layer) :]) == {"final_norm"}


def test_a_step_that_ends_with_its_feed_forward() -> None:
    """Without any norm behind it, one product and its add are still ``mlp``."""
    found = told([*LAYER, model_layers.ADD, "x"])
    assert [row[1:] for row in found[-3:]] == [
        ("mlp", "down"),
        ("mlp", "add"),
        (None, None),
    ]
    open_ended = told([*LAYER, model_layers.ADD], step=None)
    assert [row[1:] for row in open_ended[-2:]] == [(None, "gemm"), (None, "add")]


def test_the_end_of_a_layer() -> None:
    """Where the layer is known, so are up, down and the add, but not what follows."""
    gated = [*LAYER[:7], "nvjet_up", model_layers.MUL, "nvjet_down", model_layers.ADD]
    rest = ["my_norm", "nvjet_head"]
    kernels = named([*gated, *rest]).with_columns(
        layer=pl.when(pl.int_range(pl.len()) < len(gated)).then(pl.lit(0, pl.Int64))
    )
    found = assigned(kernels).select("region", "role", "assigned_by").rows()
    assert found[7:] == [
        ("mlp", "gate_up", "sequence layer-up"),
        ("mlp", "elementwise", "sequence layer-up"),
        ("mlp", "down", "sequence layer-down"),
        ("mlp", "add", "sequence layer-add"),
        (None, None, None),
        (None, "gemm", None),
    ]


BOUNDS: list[tuple[dict[str, str], list[str | None]]] = [
    ({"from": "first b"}, [None, "r", "r"]),
    ({"past": "first b"}, [None, None, "r"]),
    ({"to": "first b"}, ["r", "r", None]),
    ({"until": "first b"}, ["r", None, None]),
    ({"until": "first x"}, [None, None, None]),
]


def between(*sequences: dict[str, Any]) -> list[str | None]:
    """Regions of kernels a, b and c between two of ``mlp``."""
    rules = [{"name": role, "pattern": f"^{role}", "role": role} for role in "abc"]
    rules.append({"name": "e", "pattern": "^e", "role": "e", "region": "mlp"})
    around = {"after": ["mlp"], "before": ["mlp"]}
    table = {
        "rule": rules,
        "sequence": [{"name": each["region"]} | around | each for each in sequences],
    }
    known = msgspec.convert(table, Rules)
    kernels = assign_by_rules(named(["e", "a", "b", "c", "e"]), known)
    return assign_by_sequences(kernels, known).get_column("region").to_list()[1:-1]


@pytest.mark.parametrize(("bounds", "regions"), BOUNDS)
def test_places_bound_a_sequence(
    bounds: dict[str, str], regions: list[str | None]
) -> None:
    """The kernels at `from` and `to` are in, those at `past` and `until` are not."""
    assert between({"region": "r"} | bounds) == regions


def test_the_first_sequence_that_applies_counts() -> None:
    """What a sequence has told, a later one does not change."""
    first = {"region": "r", "to": "first a"}
    assert between(first, {"region": "s", "to": "first b"}) == ["r", "s", None]


def test_needs_without_and_kernels() -> None:
    """A sequence applies where all it needs is there, nothing else, to some roles."""
    assert between({"region": "r", "needs": ["first x"]}) == [None] * 3
    assert between({"region": "r", "needs": ["first a"]}) == ["r"] * 3
    assert between({"region": "r", "without": ["first a"]}) == [None] * 3
    assert between({"region": "r", "without": ["first x"]}) == ["r"] * 3
    assert between({"region": "r", "kernels": ["b"]}) == [None, "r", None]
