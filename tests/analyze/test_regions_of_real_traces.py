"""Regions of layers that real engines ran, against a reading of the models' code."""

from dataclasses import replace
from typing import NamedTuple

import polars as pl
import pytest

from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.placing import place
from layerscope.ingest.read import ReadOptions, read_trace
from layerscope.schema import UNASSIGNED
from tests.analyze import model_layers
from tests.analyze.model_layers import Model
from tests.ingest.real_traces import real_trace

RULES = load_rules()
FRESH = ReadOptions(cache=False)

DENSE = ("attention", "o_proj_all_reduce", "mlp")
EXPERTS = ("attention", "o_proj_all_reduce", "moe")


class Engine(NamedTuple):
    """What a file holds."""

    layers: int  # of the model
    order: set[tuple[str, ...]]  # in which its layers run their regions
    layer: int | None = None  # one that is read kernel by kernel
    model: Model | None = None  # what it runs


ENGINES = {
    "vllm_decode_full_graph_execution": Engine(
        24, {EXPERTS}, 1, model_layers.VLLM_GPT_OSS
    ),
    "vllm_prefilldecode_piecewise_graph_execution": Engine(24, {EXPERTS}),
    "sglang_Qwen3-8B_decode": Engine(36, {DENSE}, 7, model_layers.SGLANG_QWEN3),
    "b200_eager_trace": Engine(36, {EXPERTS}, 5, model_layers.VLLM_TENSOR_PARALLEL),
    # Norms come after each half: the last of a layer is the next one's input norm.
    "h100_bert-small-uncased": Engine(4, {DENSE, (*DENSE, "attention")}),
    "mi300_bert-small-uncased": Engine(4, {DENSE, (*DENSE, "attention")}),
}
CUT = ("h100_Qwen1.5-0.5B-Chat", "mi300_Qwen1.5-0.5B-Chat")


def placed(name: str) -> pl.DataFrame:
    """All that is known of the kernels of a file of TraceLens."""
    trace = read_trace(real_trace(f"TraceLens/{name}.json.gz"), FRESH)
    return place(trace, RULES)


def assigned(kernels: pl.DataFrame) -> float:
    """The part of kernel time of which the region is known."""
    own = kernels.filter(pl.col("kind") == "kernel").group_by(
        is_known=pl.col("region") != UNASSIGNED
    )
    durations = dict(own.agg(pl.col("duration_ns").sum()).rows())
    return int(durations[True]) / int(sum(durations.values()))


def orders(kernels: pl.DataFrame) -> set[tuple[str, ...]]:
    """In which order the layers run their regions, as far as these are known."""
    known = kernels.filter(
        pl.col("layer").is_not_null(),
        ~pl.col("region").is_in([UNASSIGNED, "other"]),
    )
    runs = known.with_columns(run=pl.struct("step", "layer", "region").rle_id())
    layers = (
        runs.unique("run", maintain_order=True)
        .group_by("step", "layer", maintain_order=True)
        .agg("region")
    )
    return {tuple(regions) for regions in layers["region"].to_list()}


@pytest.mark.parametrize(("name", "engine"), ENGINES.items(), ids=ENGINES)
def test_engines(name: str, engine: Engine) -> None:
    """At least 95 % of time is assigned, and each layer runs its regions in order."""
    kernels = placed(name)
    assert assigned(kernels) >= 0.95
    assert kernels["layer"].drop_nulls().n_unique() == engine.layers
    assert orders(kernels) == engine.order
    if engine.model is not None:
        one = kernels.filter(pl.col("layer") == engine.layer)
        truth = [(region, role) for _, region, role in engine.model.layer]
        assert one.select("region", "role").rows() == truth


@pytest.mark.parametrize("name", CUT)
def test_cut_traces(name: str) -> None:
    """A window cut out of several passes is assigned but for its torn ends."""
    kernels = placed(name)
    assert assigned(kernels) >= 0.95
    assert DENSE in orders(kernels)


def test_modules_and_sequences_agree() -> None:
    """What PyTorch recorded of modules is what the order of kernels tells alone."""
    trace = read_trace(real_trace("TraceLens/h100_Qwen1.5-0.5B-Chat.json.gz"), FRESH)
    blind = place(replace(trace, ranges=trace.ranges.clear()), RULES)
    found = place(trace, RULES).with_columns(blind=blind["region"])
    modules = found.filter(pl.col("assigned_by") == "range mlp")
    assert modules.height > 100
    assert set(modules["blind"].to_list()) <= {"mlp", UNASSIGNED}
