from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.environment import DeviceFacts
from layerscope.errors import InputError
from layerscope.ingest.saving import note_text, run_of, save
from layerscope.run import load
from layerscope.schema import TRACE_CALLS
from layerscope.trace import TraceDevice, TraceNote
from layerscope.trace_spec import TraceSpec
from tests.ingest import paper_trace


def spec_of(*traces: pl.DataFrame) -> TraceSpec:
    """The spec of the run that these are."""
    run = run_of([paper_trace.swept_trace(each) for each in traces], "run")
    assert isinstance(run.header.study.spec, TraceSpec)
    return run.header.study.spec


def test_a_saved_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    """The folder is a run, whose kernels are those of the trace's steps."""
    trace = paper_trace.swept_trace()
    saved = save([trace], tmp_path / "run", ["layerscope", "analyze", "x"])
    found, made = load(tmp_path / "run"), run_of([trace], "run")
    assert found.header == saved.header
    assert found.header.command == ["layerscope", "analyze", "x"]
    assert found.header.status == "complete"
    assert_frame_equal(found.kernels, made.kernels)
    assert found.samples.is_empty()


def test_the_header_says_what_the_trace_is() -> None:
    """Files, formats, who wrote them and when, and what says the regions."""
    run = run_of([paper_trace.swept_trace()], "run")
    spec = run.header.study.spec
    assert isinstance(spec, TraceSpec)
    assert spec.files == ("paper.json.gz",)
    assert (spec.format, spec.written_by) == ("Kineto JSON", "torch 2.11.0")
    assert spec.recorded == "2026-09-21T14:13:20+00:00"
    assert spec.assigned_ns == {"rule": 1_140_000, "nothing": 227_500}
    assert run.header.recorder == "Kineto JSON"
    assert run.header.environment.device == DeviceFacts(
        type="cuda",
        name="Paper GPU",
        architecture="sm_90",
        processors=132,
        memory_bytes=80_000_000_000,
    )


def test_no_arm_is_there_twice() -> None:
    """What nobody repeated has no A/A arm."""
    study = run_of([paper_trace.swept_trace()], "run").header.study
    assert [arm.name for arm in study.all_arms] == ["decode", "prefill"]


def test_notes_of_the_trace_are_warnings_of_the_run() -> None:
    """One line each; and what the run leaves out is counted."""
    warnings = run_of([paper_trace.swept_trace()], "run").header.warnings
    assert warnings == [
        "doubted: clocks that ran backwards",
        "dropped: 2 kernels without a time",
        "3 kernels outside of steps (1.500 µs in sum) are left out of the run",
    ]


def test_a_step_without_layers_is_a_warning() -> None:
    """A pass is then something else than elsewhere."""
    none = pl.lit(None, pl.Int64)
    kernels = paper_trace.kernels().with_columns(layer=none)
    warnings = run_of([paper_trace.swept_trace(kernels)], "run").header.warnings
    assert "no layers were found in decode: a pass is a whole step" in warnings


def test_a_trace_without_steps_is_a_warning() -> None:
    """Nobody knows then what the only replay is."""
    none = pl.lit(None, pl.Int64)
    kernels = paper_trace.kernels().with_columns(layer=none, step=none)
    warnings = run_of([paper_trace.swept_trace(kernels)], "run").header.warnings
    assert "no steps were found: the whole device is taken as one" in warnings


@pytest.mark.parametrize(
    ("ranks", "arms"),
    [
        ((2, 5), ["decode:rank=2", "prefill:rank=2", "decode:rank=5"]),
        ((None, 5), ["decode:trace=0", "prefill:trace=0", "decode:trace=1"]),
        ((5, 5), ["decode:trace=0", "prefill:trace=0", "decode:trace=1"]),
    ],
)
def test_several_traces_are_told_apart(
    ranks: tuple[int | None, int | None], arms: list[str]
) -> None:
    """By rank where each has one of its own, else by their order."""
    traces = [paper_trace.swept_trace(rank=rank) for rank in ranks]
    run = run_of(traces, "run")
    assert [arm.name for arm in run.header.study.arms][:3] == arms
    assert run.kernels.height == 2 * 39
    first, *_ = run.header.warnings
    assert first == "doubted: clocks that ran backwards, in paper.json.gz"


def test_several_traces_have_one_spec() -> None:
    """Files are listed, and times added up."""
    spec = spec_of(paper_trace.kernels(), paper_trace.kernels())
    assert spec.files == ("paper.json.gz", "paper.json.gz")
    assert spec.format == "Kineto JSON"
    assert spec.assigned_ns == {"rule": 2_280_000, "nothing": 455_000}


@pytest.mark.parametrize(
    ("architecture", "call", "kind"),
    [
        ("gfx942", "", "hip"),
        ("sm_90", "", "cuda"),
        ("", "hipLaunchKernel", "hip"),
        ("", "cudaLaunchKernel", "cuda"),
        ("", "cuLaunchKernel", "cuda"),
        ("", "", ""),
    ],
)
def test_the_runtime_is_told_by_what_there_is(
    architecture: str, call: str, kind: str
) -> None:
    """By the architecture, else by calls, else not at all."""
    row = {"name": call, "start_ns": 0, "duration_ns": 1}
    calls = pl.DataFrame([dict.fromkeys(TRACE_CALLS) | row], schema=TRACE_CALLS)
    trace = paper_trace.swept_trace(
        calls=calls if call else calls.clear(),
        devices=(TraceDevice(device=0, architecture=architecture),),
    )
    assert run_of([trace], "run").header.environment.device.type == kind


def test_a_device_is_found_whatever_its_number() -> None:
    """Kernels may be on device 2 of a list of one."""
    devices = (TraceDevice(device=7, name="Paper MI300X"),)
    run = run_of([paper_trace.swept_trace(devices=devices)], "run")
    assert run.header.environment.device.name == "Paper MI300X"


def test_a_time_that_no_calendar_has_is_not_told() -> None:
    """A header of nonsense does not stop a run."""
    far = paper_trace.swept_trace(origin_ns=2**70)
    spec = run_of([far], "run").header.study.spec
    assert isinstance(spec, TraceSpec)
    assert spec.recorded == ""


def test_a_trace_without_kernels_is_refused() -> None:
    """There is nothing to make a run of."""
    empty = paper_trace.swept_trace(paper_trace.kernels().clear())
    with pytest.raises(InputError, match=r"paper\.json\.gz: no kernel is in it"):
        run_of([empty], "run")


def test_steps_of_two_layers_are_not_saved(tmp_path: Path) -> None:
    """No layer is between two others, so a run would show nothing."""
    few = paper_trace.kernels().filter(pl.col("layer").fill_null(0) < 2)
    with pytest.raises(InputError, match="no step has three layers"):
        save([paper_trace.swept_trace(few)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "doubted: x"), (1, "doubted: x"), (1_234, "doubted: 1,234 x")],
)
def test_notes_are_lines(count: int, told: str) -> None:
    """The kind, how many, and what."""
    assert note_text(TraceNote(kind="doubted", what="x", count=count)) == told


def test_why_gaps_are_not_told_from_kernels_is_kept(tmp_path: Path) -> None:
    """Of every arm, and on disk; nothing where they can be told."""
    save([paper_trace.swept_trace(paper_trace.touching())], tmp_path / "run")
    for run, why in (
        (load(tmp_path / "run"), "durations hold the gaps between kernels"),
        (run_of([paper_trace.swept_trace()], "run"), ""),
    ):
        spec = run.header.study.spec
        assert isinstance(spec, TraceSpec)
        assert [each.why_no_gaps for each in spec.steps] == [why, why]
