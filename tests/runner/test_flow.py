import dataclasses
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
import torch

from layerscope import run as runs
from layerscope import study as plans
from layerscope.atomic import replace_files
from layerscope.environment import DeviceFacts, available_memory_bytes
from layerscope.errors import (
    BackendError,
    InputError,
    MeasurementError,
    RecordError,
)
from layerscope.graphs import memory
from layerscope.graphs.eager import EagerPlayer
from layerscope.layers.problem import estimate_bytes
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import Numerics, Requires, Switch
from layerscope.run import Run, load
from layerscope.run_header import NumericsCheck
from layerscope.runner import RunnerOptions, flow, profile
from layerscope.runner import phases as phases_of_a_study
from layerscope.runner.bench import Bench
from layerscope.runner.numerics import check_arms
from layerscope.runner.rounds import Phase
from layerscope.study import Arm, Study
from tests.runner import fakes
from tests.runner.fakes import AGAIN, FUSED, REFERENCE, Install

ROUNDS = 4


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    """The reference alone, four rounds of two-pass replays, and no time for more."""
    monkeypatch.setattr(plans, "MIN_ROUNDS", 1)
    made = fakes.study(REFERENCE, samples=2 * ROUNDS, lengths=(2,))
    return msgspec.structs.replace(made, time_budget_s=1e-9)


@pytest.fixture
def options(tmp_path: Path) -> RunnerOptions:
    """A new folder, on the CPU, nothing recorded."""
    return RunnerOptions(output=tmp_path / "run", device="cpu", recorder="none")


def replace(options: RunnerOptions, **changes: Any) -> RunnerOptions:  # noqa: ANN401
    """The options with some of them changed."""
    fields = RunnerOptions.__dataclass_fields__
    values = {name: getattr(options, name) for name in fields}
    return RunnerOptions(**(values | changes))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make ``fused`` a backend."""
    return fakes.installer(monkeypatch)


class Hook:
    """A progress that calls back when a phase has made some steps."""

    def __init__(self, phase: str, steps: int, call: Callable[[], None]) -> None:
        self._when = (phase, steps)
        self._call = call
        self._phase = ""
        self._steps = 0

    def phase(self, name: str, total: int) -> None:
        """Count from 0 again."""
        del total
        self._phase, self._steps = name, 0

    def advance(self, steps: int = 1) -> None:
        """Count, and call back if it is time."""
        self._steps += steps
        wanted, count = self._when
        if self._phase.startswith(wanted) and self._steps == count:
            self._call()

    def note(self, text: str) -> None:
        """Nothing is shown."""


def interrupt() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def rounds(run: Run, phase: str = "anchor") -> list[int]:
    """The rounds that are whole, of all arms."""
    chosen = run.samples.filter(phase=phase)
    counts = chosen.group_by("round").len().sort("round")
    arms = chosen["arm"].n_unique()
    return counts.filter(pl.col("len") == arms)["round"].to_list()


def test_a_study_is_measured_recorded_and_measured_again(
    study: Study, options: RunnerOptions
) -> None:
    """The run on disk is the one returned: whole, with numerics, builds and bytes."""
    command = ["layerscope", "profile"]
    run = profile(study, replace(options, recorder="auto", command=command))
    header = run.header
    assert (header.status, header.status_reason) == ("complete", "")
    assert (header.study, header.command) == (study, command)
    assert (header.recorder, header.environment.device.type) == (
        "torch.profiler",
        "cpu",
    )
    assert [(c.arm, c.passes) for c in header.numerics] == [
        ("reference", True),
        (AGAIN, True),
    ]
    assert isinstance(study.spec, LayerSpec)
    assert [(b.arm, b.region) for b in header.bytes] == [
        ("reference", region) for region in study.spec.regions
    ]
    assert all((b.touched or 0) >= b.required > 0 for b in header.bytes)
    assert rounds(run) == rounds(run, "after") == list(range(ROUNDS))
    replays = run.kernels.select("arm", "replay").unique().sort("arm", "replay")
    assert replays.rows() == [
        (arm, replay) for arm in ("reference", AGAIN) for replay in range(2 * ROUNDS)
    ]
    again = load(options.output)
    assert again.header == header
    assert again.samples.equals(run.samples)
    assert again.kernels.equals(run.kernels)


def test_anchors_and_records_each_have_captures_of_their_own(
    study: Study, options: RunnerOptions
) -> None:
    """The plan is spread over the captures; anchors again are of the last recorded."""
    three = msgspec.structs.replace(study, captures=3, samples=2 * 3 * 2)
    run = profile(three, replace(options, recorder="auto"))
    made = run.samples.group_by("phase", "capture").agg(pl.col("round").n_unique())
    assert sorted(made.rows()) == [
        *(("after", 5, 2),),
        *[("anchor", capture, 2) for capture in range(3)],
    ]
    recorded = run.kernels.group_by("capture").agg(pl.col("replay").n_unique())
    assert sorted(recorded.rows()) == [(capture, 4) for capture in (3, 4, 5)]


def test_a_budget_that_has_ended_leaves_the_fewest_that_tell(
    study: Study, options: RunnerOptions
) -> None:
    """Three captures of six rounds and one block of records each, and a warning."""
    eight = msgspec.structs.replace(study, captures=8, samples=8 * 2 * 40)
    run = profile(eight, replace(options, recorder="auto"))
    made = run.samples.group_by("phase", "capture").agg(pl.col("round").n_unique())
    assert sorted(made.rows()) == [
        ("after", 10, 6),
        *[("anchor", capture, 6) for capture in range(3)],
    ]
    recorded = run.kernels.group_by("capture").agg(pl.col("replay").n_unique())
    assert sorted(recorded.rows()) == [(capture, 8) for capture in (8, 9, 10)]
    assert run.header.status == "complete"
    (warning,) = run.header.warnings
    assert warning == (
        "its 1e-09 s of the time budget ended before the plan was done: fewer rounds "
        "or captures were made; raise --time-budget"
    )


def test_the_run_says_where_its_weights_came_from(
    study: Study, options: RunnerOptions, tmp_path: Path
) -> None:
    """Random ones by default, and where a folder holds none, which is a warning."""
    run = profile(study, options)
    assert (run.header.weights, run.header.warnings) == ("random, seed 0", [])
    empty = tmp_path / "model"
    empty.mkdir()
    other = replace(options, output=tmp_path / "other", model_folder=empty)
    run = profile(study, other)
    assert run.header.weights == "random, seed 0"
    told = f"{empty} holds no safetensors: weights are random, seed 0"
    assert run.header.warnings == [told]
    assert run.header.host_memory_bytes > 0


def test_replays_that_the_cache_could_hold_are_a_warning(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five times the L2 cache must be touched, or weights are not read from memory."""
    facts = DeviceFacts(type="cpu", name="paper", l2_bytes=10**9)
    monkeypatch.setattr("layerscope.graphs.device.facts", lambda _: facts)
    (warning,) = profile(study, options).header.warnings
    assert warning.startswith("a replay of 2 passes needs ")
    assert "less than 5 times the L2 cache of 1000 MB" in warning


def test_without_a_recorder_there_are_anchors_alone(
    study: Study, options: RunnerOptions
) -> None:
    """Nothing was attached, so nothing is measured a second time."""
    run = profile(study, options)
    assert run.header.recorder == ""
    assert run.kernels.is_empty()
    assert run.samples["phase"].unique().to_list() == ["anchor"]


def test_every_reason_against_a_study_comes_at_once_and_makes_no_folder(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Those of the device and of every arm, before weights exist."""
    install(requires=Requires(device_types=("cuda",), max_rows=1))
    arms = (REFERENCE, Arm(backend="fused"))
    with pytest.raises(MeasurementError) as raised:
        profile(msgspec.structs.replace(study, arms=arms), options)
    assert str(raised.value) == (
        "fused needs device cuda, not cpu; fused runs at most 1 rows, not 6; see what "
        "fits here: layerscope backends"
    )
    assert not options.output.exists()


def test_a_reason_against_several_backends_is_told_once(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of them; what is said of one of them stays its own."""
    on_gpus = Requires(device_types=("cuda",))
    many = dataclasses.replace(on_gpus, max_rows=1)
    one, other = (
        dataclasses.replace(BACKEND, name=name, requires=requires)
        for name, requires in (("one", on_gpus), ("other", many))
    )
    monkeypatch.setattr(flow, "load_backend", {"one": one, "other": other}.__getitem__)
    arms = (Arm(backend="one"), Arm(backend="other"))
    with pytest.raises(MeasurementError) as raised:
        profile(msgspec.structs.replace(study, arms=arms), options)
    assert str(raised.value) == (
        "one, other: needs device cuda, not cpu; other runs at most 1 rows, not 6; see "
        "what fits here: layerscope backends"
    )


def test_every_switch_that_an_arm_does_not_have_is_the_users_error(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Names and values alike, all at once, like any other wrong flag."""
    switch = Switch(name="pdl", values=("on", "off"), toggles="launch")
    install(switches=(switch,))
    arms = (REFERENCE, Arm(backend="fused", switches={"pdl": "stock", "x": "1"}))
    with pytest.raises(InputError) as raised:
        profile(msgspec.structs.replace(study, arms=arms), options)
    fused = "fused:pdl=stock:x=1"
    assert str(raised.value) == (
        f"{fused} needs pdl to be one of on, off, not stock; "
        f"{fused} has no switch x; it has pdl"
    )
    assert not options.output.exists()


def test_what_cannot_fit_is_refused_before_anything_is_allocated(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passes, steps and inputs are counted; one byte too few is too few."""
    needed = estimate_bytes(fakes.SPEC, study.passes, study.steps)
    assert needed < available_memory_bytes()
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: needed - 1)
    monkeypatch.setattr(flow, "make_problem", None)
    with pytest.raises(MeasurementError, match="weights, KV and inputs need"):
        profile(study, options)
    assert not options.output.exists()


def test_a_wrong_arm_is_refused_before_anything_is_timed(
    study: Study,
    options: RunnerOptions,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One bad arm spoils the comparison, so not even the others are timed."""
    install(numerics=Numerics(float32=0.0))
    monkeypatch.setattr(EagerPlayer, "time", None)
    arms = (REFERENCE, FUSED)
    with pytest.raises(BackendError, match=r"^fused is wrong: relative error"):
        profile(msgspec.structs.replace(study, arms=arms), options)
    assert not options.output.exists()


def test_a_build_that_fails_leaves_no_folder(
    study: Study, options: RunnerOptions
) -> None:
    """A folder without a single sample tells nothing."""
    spec = msgspec.structs.replace(study.spec, tp=2)
    with pytest.raises(BackendError, match="no communication between the 2 ranks"):
        profile(msgspec.structs.replace(study, spec=spec), options)
    assert not options.output.exists()


def test_a_folder_in_use_is_left_as_it_is(study: Study, options: RunnerOptions) -> None:
    """The files of another run are neither mixed with ours nor cleaned away."""
    options.output.mkdir()
    (options.output / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="already holds files"):
        profile(study, options)
    assert [path.name for path in options.output.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("phase", "steps"), [("making", 1), ("building", 1), ("anchors, capture 1", 0)]
)
def test_an_interruption_before_the_first_sample_leaves_no_folder(
    study: Study,
    options: RunnerOptions,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    steps: int,
) -> None:
    """While weights are made, arms built, or numerics checked."""
    if not steps:
        monkeypatch.setattr(
            phases_of_a_study, "check_arms", lambda *_, **__: interrupt()
        )
    progress = Hook(phase, steps, interrupt)
    with pytest.raises(KeyboardInterrupt):
        profile(study, replace(options, progress=progress))
    assert not options.output.exists()


def test_an_interruption_in_the_anchors_leaves_their_whole_rounds(
    study: Study, options: RunnerOptions
) -> None:
    """The run can be read, and says that it was interrupted."""
    progress = Hook("anchors", 2, interrupt)
    with pytest.raises(KeyboardInterrupt):
        profile(study, replace(options, progress=progress))
    run = load(options.output)
    assert (run.header.status, run.header.status_reason) == ("partial", "interrupted")
    assert rounds(run) == [0, 1, 2]  # the third was in flight while the second was read
    assert run.header.numerics != []


def test_an_interruption_while_recording_leaves_the_blocks_before_it(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anchors and whole blocks of kernels stay."""
    monkeypatch.setattr(phases_of_a_study, "_ANCHOR_SHARE", 0.0)
    long = msgspec.structs.replace(study, samples=2 * 12, time_budget_s=600.0)
    progress = Hook("recording", 16, interrupt)
    with pytest.raises(KeyboardInterrupt):
        profile(long, replace(options, recorder="auto", progress=progress))
    run = load(options.output)
    assert run.header.status_reason == "interrupted"
    assert rounds(run) == list(range(12))
    assert run.kernels["replay"].unique().sort().to_list() == list(range(16))


def test_what_cannot_be_measured_any_more_leaves_what_was(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder that fails does not cost the anchors; the run says why it stopped."""

    def refuse(*_: object) -> None:
        msg = "the profiler is in use; close it"
        raise MeasurementError(msg)

    monkeypatch.setattr(phases_of_a_study, "record", refuse)
    with pytest.raises(MeasurementError, match="the profiler is in use"):
        profile(study, replace(options, recorder="auto"))
    run = load(options.output)
    assert run.header.status == "partial"
    assert run.header.status_reason == "the profiler is in use; close it"
    assert rounds(run) == list(range(ROUNDS))


def test_memory_that_runs_out_is_one_line_here_and_in_the_run(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the allocation fails, the line says what is free."""

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(phases_of_a_study, "record", fail)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 8 * 10**9))
    with pytest.raises(MeasurementError, match=r"^out of GPU memory, 1\.0 of 8\.0 GB"):
        profile(study, replace(options, recorder="auto"))
    assert load(options.output).header.status_reason.startswith("out of GPU memory")


def test_a_bug_keeps_its_error_and_the_samples(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of ours replaces the traceback; the run can be read all the same."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(phases_of_a_study, "record", fail)
    with pytest.raises(ZeroDivisionError):
        profile(study, replace(options, recorder="auto"))
    run = load(options.output)
    assert (run.header.status, run.header.status_reason) == (
        "partial",
        "an unexpected error",
    )
    assert rounds(run) == list(range(ROUNDS))


def fill_disk(monkeypatch: pytest.MonkeyPatch, *writes: int) -> None:
    """Let the given writes of the run, from 1, find no space."""
    write = replace_files
    count = iter(range(1, 99))

    def crowded(folder: Path, contents: dict[str, bytes]) -> None:
        if next(count) in writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, contents)

    monkeypatch.setattr(runs, "replace_files", crowded)


KEPT = f"what was recorded up to round {ROUNDS - 1} of capture 0 is kept there"


def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_measured(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that failed is made up for as the run ends, and the run says why."""
    fill_disk(monkeypatch, 3)  # after the recording; before: the start, the anchors
    with pytest.raises(RecordError) as raised:
        profile(study, replace(options, recorder="auto"))
    assert str(raised.value) == (
        f"disk full while writing {options.output}: {KEPT}; "
        "free some space and run again"
    )
    run = load(options.output)
    assert run.header.status_reason == str(raised.value)
    assert rounds(run) == list(range(ROUNDS))
    assert not run.kernels.is_empty()


def test_a_disk_that_stays_full_keeps_what_was_saved_before(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint before is whole and partial, and the error says what it holds."""
    fill_disk(monkeypatch, *range(3, 9))
    with pytest.raises(RecordError, match=KEPT):
        profile(study, replace(options, recorder="auto"))
    run = load(options.output)
    assert run.header.status == "partial"
    assert rounds(run) == list(range(ROUNDS))
    assert run.kernels.is_empty()


@pytest.mark.parametrize("first", [1, 2])
def test_a_disk_that_is_full_before_any_sample_leaves_no_folder(
    study: Study,
    options: RunnerOptions,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
) -> None:
    """Nothing could be kept, and the error says so; the output can be used again."""
    fill_disk(monkeypatch, *range(first, 9))
    with pytest.raises(RecordError, match="nothing could be kept"):
        profile(study, options)
    assert not options.output.exists()


def test_every_capture_is_checked_those_that_are_recorded_too(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture of its own may be wrong where the one before it was right.

    Those after the first are checked briefly.
    """
    checked: list[tuple[int, bool]] = []

    def note(bench: Bench, *, is_brief: bool) -> list[NumericsCheck]:
        checked.append((bench._captures, is_brief))
        return check_arms(bench, is_brief=is_brief)

    monkeypatch.setattr(phases_of_a_study, "check_arms", note)
    two = msgspec.structs.replace(study, captures=2, time_budget_s=60.0)
    monkeypatch.setattr(phases_of_a_study, "_ANCHOR_SHARE", 0.0)
    profile(two, replace(options, recorder="auto"))
    assert checked == [(1, False), (2, True), (3, True), (4, True)]


def test_the_worst_check_of_every_arm_is_kept() -> None:
    """Every capture is checked; the run tells the largest error."""
    small, large, other = (
        NumericsCheck(arm=arm, error=error, bound=1.0, passes=True)
        for arm, error in (("a", 0.1), ("a", 0.2), ("b", 0.05))
    )
    assert phases_of_a_study._worst([small, other, large]) == [large, other]
    assert phases_of_a_study._worst([large, other, small]) == [large, other]


def test_no_unplanned_round_begins_after_the_deadline(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patience of a capture never reaches beyond the budget of the study."""
    phases: list[Phase] = []
    monkeypatch.setattr(
        phases_of_a_study, "measure", lambda _, phase: phases.append(phase)
    )
    monkeypatch.setattr(phases_of_a_study, "_ANCHOR_SHARE", 100.0)
    began_s = time.monotonic()
    profile(msgspec.structs.replace(study, time_budget_s=50.0), options)
    (phase,) = phases
    assert began_s + 50.0 <= phase.patience_s <= time.monotonic() + 50.0


def test_a_run_whose_last_write_fails_is_partial(
    study: Study, options: RunnerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete is only what is whole on disk."""
    fill_disk(monkeypatch, 3)  # nothing is recorded, so it is the end of the run
    with pytest.raises(RecordError, match="disk full"):
        profile(study, options)
    run = load(options.output)
    assert run.header.status == "partial"
    assert run.header.status_reason.startswith("disk full")


def test_a_spec_that_no_machine_can_run_is_refused_first(
    study: Study, options: RunnerOptions
) -> None:
    """Before the device is looked at or a folder made."""
    spec = msgspec.structs.replace(study.spec, dtype=DType.FLOAT8_E4M3)
    with pytest.raises(InputError, match="--dtype is for activations"):
        profile(
            msgspec.structs.replace(study, spec=spec), replace(options, device="no")
        )
    assert not options.output.exists()
