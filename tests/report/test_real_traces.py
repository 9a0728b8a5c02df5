"""Reports on traces of real models, where those are at hand."""

import polars as pl
import pytest

from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.placing import place
from layerscope.analyze.stream_overlaps import OverlapKind, stream_overlaps
from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from layerscope.ingest.read import ReadOptions, read_trace
from layerscope.report.trace import TraceView, trace_report
from tests.ingest.real_traces import real_trace


def swept(name: str) -> SweptTrace:
    """A real trace, with its kernels placed."""
    trace = read_trace(real_trace(name), ReadOptions(cache=False))
    return sweep_trace(trace, place(trace, load_rules()))


def overlaps(found: SweptTrace) -> pl.DataFrame:
    """Kernels that begin before what ran before them on their stream had ended."""
    pairs = stream_overlaps(found.kernels, found.architectures())
    return pairs.filter(pl.col("overlap_ns") > 0)


def test_programmatic_launches_of_a_b200() -> None:
    """All 74 overlaps of one stream are of MoE kernels, and consistent with PDL."""
    pairs = overlaps(swept("TraceLens/b200_eager_trace.json.gz"))
    assert pairs.height == 74
    assert set(pairs["kind"]) == {OverlapKind.PROGRAMMATIC}
    assert set(pairs["region"]) == {"moe"}
    edges = pairs.group_by("producer", "name").len().sort("len")
    assert edges["len"].to_list() == [2, 36, 36]
    assert pairs["overlap_ns"].max() == 3_744


def test_branches_of_graphs_on_a_v100() -> None:
    """A V100 has no PDL: what overlaps within a replay there are branches."""
    pairs = overlaps(swept("HolisticTraceAnalysis/trace_diff_test.json.gz"))
    assert set(pairs["kind"]) == {OverlapKind.BRANCHES}
    assert pairs["overlap_ns"].max() == 13_000
    assert pairs["is_nested"].sum() == 6


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("TraceLens/b200_eager_trace.json.gz", "36 a step"),
        ("TraceLens/vllm_decode_full_graph_execution.json.gz", "24 a step"),
        ("TraceLens/sglang_Qwen3-8B_decode.json.gz", "36 a step"),
    ],
)
def test_layers(name: str, layers: str) -> None:
    """As many layers are told as the model has."""
    report = trace_report(swept(name), TraceView())
    facts = {fact.label: fact.text for fact in report.facts}
    assert facts["layers"].startswith(layers)


def test_records_that_hide_gaps() -> None:
    """Replays whose kernels touch to the nanosecond do not prove computing."""
    found = swept("TraceLens/vllm_decode_full_graph_execution.json.gz")
    report = trace_report(found, TraceView())
    verdict = report.headlines[-1].text
    assert verdict.startswith("computes, as far as told: durations hold the gaps")
