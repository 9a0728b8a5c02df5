"""Real traces as runs, and against each other; skipped where there are none."""

from pathlib import Path

import pytest

from layerscope.analyze.rank_alignment import RankKernels, align_ranks
from layerscope.errors import InputError
from layerscope.ingest.read import read_traces
from layerscope.ingest.traced_runs import read_as_run
from layerscope.report import build_report
from layerscope.report.across_runs import compare_runs
from layerscope.trace_spec import TraceSpec
from tests.ingest.real_traces import real_trace

PAIRS = {
    "Qwen1.5-0.5B-Chat": (24, 22),
    "bert-small-uncased": (4, 2),
}
"""Layers of the model, and how many of them stand between two others."""


@pytest.mark.parametrize("model", PAIRS)
def test_one_model_on_two_devices(model: str) -> None:
    """Layers of the right number; lines that add up; other devices are refused."""
    layers, between = PAIRS[model]
    base, other = (
        read_as_run(real_trace(f"TraceLens/{device}_{model}.json.gz"))
        for device in ("h100", "mi300")
    )
    for run in (base, other):
        assert isinstance(run.header.study.spec, TraceSpec)
        (steps,) = run.header.study.spec.steps
        assert (steps.steps, steps.layers) == (1, layers)
    with pytest.raises(InputError, match="NVIDIA H100 80GB HBM3 against AMD Instinct"):
        compare_runs(base, other)
    report = compare_runs(base, other, anyway=True)
    arms, ledger, *_ = report.tables
    assert [row[1:3] for row in arms.rows] == [(between, between)] * 2
    *lines, change = [row[1] for row in ledger.rows]
    assert sum(lines) == pytest.approx(change)  # type: ignore[arg-type]
    assert arms.rows[1][4] - arms.rows[0][4] == pytest.approx(change)  # type: ignore[operator]


def test_what_cannot_be_trusted_comes_first() -> None:
    """Of the MI300 trace, durations hold the gaps between kernels."""
    path = real_trace("TraceLens/mi300_Qwen1.5-0.5B-Chat.json.gz")
    first = build_report(read_as_run(path)).headlines[0]
    assert first.label == "untrusted"
    assert "durations hold the gaps between kernels" in first.text


def test_traces_without_layers_are_compared_by_steps() -> None:
    """Two reductions by hand of one training step."""
    base, other = (
        read_as_run(real_trace(f"HolisticTraceAnalysis/trace_compare_{side}.json.gz"))
        for side in ("base", "test")
    )
    report = compare_runs(base, other)
    assert report.headlines[0].text.startswith("a step 157.1 ms against 274.0 ms, ")
    arms, *_ = report.tables
    assert arms.title.startswith("one step: ")


def test_the_clocks_of_eight_ranks_of_one_host() -> None:
    """They are one clock, so true offsets are known: those of the traces' beginnings.

    Times are whole microseconds, and so is what the alignment may be off by.
    """
    folder = real_trace("param/dlrm_kineto")
    traces = read_traces([folder]).traces
    found = align_ranks([RankKernels(each.rank or 0, each.kernels) for each in traces])
    origins = [each.origin_ns or 0 for each in traces]
    true_ns = [origin - origins[0] for origin in origins]
    off_ns = [
        abs(offset - true)
        for offset, true in zip(found.ranks["offset_ns"], true_ns, strict=True)
    ]
    assert found.ranks["rank"].to_list() == list(range(8))
    assert max(off_ns) <= 1_000
    assert found.error_ns <= 4_000
    assert (found.unaligned, found.incomplete) == ((), 0)


def test_skew_and_transfer_of_eight_ranks() -> None:
    """Ranks wait for the last one, for most of the time; moving bytes is quick."""
    traces = read_traces([real_trace("param/dlrm_kineto")]).traces
    found = align_ranks([RankKernels(each.rank or 0, each.kernels) for each in traces])
    collectives = found.collectives
    assert collectives["collective"].to_list() == [
        *["all-to-all"] * 4,
        *("all-reduce", "all-to-all", "all-reduce", "all-reduce"),
    ]
    # on the one clock that they had: first and last arrival, and the median end
    true_ns = [
        (7_624_000, 10_000),
        (1_101_000, 7_500),
        (168_000, 7_000),
        (124_000, 7_000),
        (223_000, 85_500),
        (534_000, 10_000),
        (583_000, 20_000),
        (885_000, 66_000),
    ]
    for row, (skew_ns, transfer_ns) in zip(
        collectives.iter_rows(named=True), true_ns, strict=True
    ):
        assert abs(row["skew_ns"] - skew_ns) <= 2_000
        assert abs(row["transfer_ns"] - transfer_ns) <= 2_000
    assert found.ranks["late"].to_list() == [0, 0, 0, 0, 1, 2, 0, 5]


def test_a_folder_of_ranks_is_one_run() -> None:
    """An arm a rank, under its number."""
    run = read_as_run(real_trace("param/dlrm_kineto"))
    assert [arm.name for arm in run.header.study.arms] == [
        f"step:rank={rank}" for rank in range(8)
    ]


def test_what_was_skipped_is_a_warning(tmp_path: Path) -> None:
    """A folder may hold other things beside traces."""
    made = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
    name = "made-eager.json.gz"
    (tmp_path / name).write_bytes((made / name).read_bytes())
    (tmp_path / "notes.txt").write_text("of the author", encoding="utf-8")
    run = read_as_run(tmp_path)
    (warning,) = run.header.warnings
    assert warning.startswith(f"{tmp_path / 'notes.txt'} ")
