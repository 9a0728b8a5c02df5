import errno
import json
import os
import sys
from pathlib import Path

import pytest

import layerscope.runner
from layerscope.cli.main import main
from layerscope.errors import DeviceLostError, MeasurementError
from layerscope.graphs import device
from layerscope.layers.spec import LayerSpec
from layerscope.run import Run, RunWriter, load
from layerscope.runner import RunnerOptions
from layerscope.study import Study
from tests import handmade


class FakeRunner:
    """Writes the hand-made run instead of measuring, or fails as it is told to."""

    def __init__(self) -> None:
        """Succeed until `error` is set."""
        self.error: BaseException | None = None
        self.is_late = False
        self.is_begun = False
        self.study: Study | None = None
        self.options: RunnerOptions | None = None

    def profile(self, study: Study, options: RunnerOptions) -> Run:
        """What `runner.profile` promises."""
        self.study, self.options = study, options
        if self.error is not None and not self.is_late:
            raise self.error
        if self.is_begun:
            options.progress.phase("weights", 1)
        handmade.write(options.output)
        if self.error is not None:
            raise self.error
        return load(options.output)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """A runner that measures nothing."""
    fake = FakeRunner()
    monkeypatch.setattr(layerscope.runner, "profile", fake.profile)
    return fake


def profile(output: Path, *arguments: str) -> int:
    """The exit code of a profile of the reference on the CPU."""
    fixed = ["--device", "cpu", "--arms", "reference", "-o", str(output)]
    return main(["profile", *fixed, *arguments])


def test_a_profile_prints_its_report(
    tmp_path: Path, runner: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report goes to stdout, where it was saved to stderr, and the code is 0."""
    output = tmp_path / "run"
    assert profile(output, "--context", "64") == 0
    out, err = capsys.readouterr()
    assert out.startswith("paper-moe, layer 0\n")
    assert err == f"saved; see it again: layerscope show {output}\n"
    assert runner.study is not None
    assert isinstance(runner.study.spec, LayerSpec)
    assert runner.study.spec.context == 64
    assert runner.options is not None
    assert runner.options.device == "cpu"
    assert runner.options.output == output
    assert runner.options.model_folder is None
    assert runner.options.command[:2] == ["layerscope", "profile"]
    assert runner.options.command[-2:] == ["--context", "64"]


@pytest.mark.parametrize("package", ["torch", "safetensors"])
def test_what_a_plain_install_lacks_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: str,
) -> None:
    """Exit code 1 and the line that installs it."""
    monkeypatch.setitem(sys.modules, package, None)
    assert profile(tmp_path / "run") == 1
    assert capsys.readouterr() == (
        "",
        f"error: profile needs {package}; pip install 'layerscope[profile]'\n",
    )


def test_what_will_be_made_is_told_when_it_begins(
    tmp_path: Path, runner: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """218 million bf16 weights a pass, a little KV, and the activations."""
    model = ("--model", "llama-3.1-8b", "--dtype", "bfloat16", "--context", "16")
    runner.is_begun = True
    assert profile(tmp_path / "run", *model, "--passes", "4") == 0
    first, _ = capsys.readouterr().err.splitlines()
    assert first == "4 passes of weights and KV: 1.748 GB; a pass must move 436.8 MB"


@pytest.mark.usefixtures("runner")
def test_json_is_all_of_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json, stdout is one JSON object and nothing else."""
    assert profile(tmp_path / "run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["path"] == str(tmp_path / "run")


def test_an_interrupted_profile_names_what_was_kept(
    tmp_path: Path, runner: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is exit code 130 and one line that leads to the partial run."""
    runner.error, runner.is_late = KeyboardInterrupt(), True
    assert profile(tmp_path / "run") == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"interrupted; see what was kept: layerscope show {tmp_path / 'run'}\n"
    )


LOST = DeviceLostError(
    "fused, without moe: CUDA error; run again with --no-experiments"
)


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Programs that this one became, and then was no more."""
    programs: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: programs.append(arguments))
    return programs


def test_a_study_whose_edited_graph_fails_begins_again_without_experiments(
    tmp_path: Path,
    runner: FakeRunner,
    began: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As another program, for this one can use the device no more; it is said why."""
    runner.error = LOST
    profile(tmp_path / "run", "--context", "64")
    ((python, *arguments),) = began
    assert python == sys.executable
    assert arguments[:3] == ["-m", "layerscope", "profile"]
    assert arguments[-3:] == ["--context", "64", "--no-experiments"]
    assert capsys.readouterr().err.startswith(f"{LOST}; beginning again so\n")


@pytest.mark.parametrize("asked", [(), ("--experiment", "serial passes")])
def test_nothing_begins_again_that_was_measured_or_asked_for(
    tmp_path: Path, runner: FakeRunner, began: list[list[str]], asked: tuple[str, ...]
) -> None:
    """What was measured is kept, and edits by name are what the study is for."""
    runner.error, runner.is_late = LOST, not asked
    assert profile(tmp_path / "run", *asked) in (1, 2)
    assert began == []


def test_an_interrupt_before_any_sample_says_so(
    tmp_path: Path, runner: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C before the first checkpoint is exit code 130 and one line."""
    runner.error = KeyboardInterrupt()
    assert profile(tmp_path / "run") == 130
    assert capsys.readouterr() == ("", "interrupted; nothing was recorded\n")


def test_an_interrupt_before_there_is_a_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loading torch takes seconds, in which Ctrl-C is as good as later."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(device, "resolve", interrupted)
    assert profile(tmp_path / "run") == 130
    assert capsys.readouterr() == ("", "interrupted; nothing was recorded\n")


def test_a_measurement_error_is_one_line(
    tmp_path: Path, runner: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the machine cannot do is exit code 1 and one line."""
    runner.error = MeasurementError("MIG is enabled")
    assert profile(tmp_path / "run") == 1
    assert capsys.readouterr() == ("", "error: MIG is enabled\n")


def test_a_bug_keeps_its_traceback(tmp_path: Path, runner: FakeRunner) -> None:
    """Only layerscope's own errors lose their traceback."""
    runner.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        profile(tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gpt-9"], "no preset is called 'gpt-9'"),
        (["--model", "./nowhere"], "nowhere"),
        (["--layer", "9"], "layer 9 is out of range"),
        (["--arms", "a:b"], "'b' of a is not switch=value"),
        (["--tp", "2"], "--tp 2 needs 2 GPUs"),
        (["--device", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_what_the_user_gave_wrong_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """A bad name or flag is exit code 2 and one line, and makes no folder."""
    assert profile(tmp_path / "run", *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_full_disk_keeps_earlier_samples(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ENOSPC while measuring is exit code 1, one line, and a readable partial run."""
    output = tmp_path / "run"

    def measure(_study: Study, options: RunnerOptions) -> Run:
        writer = RunWriter(options.output, handmade.header())
        writer.add_samples(handmade.samples(("anchor",)))
        writer.checkpoint()
        writer.add_samples(handmade.samples(("after",)))
        monkeypatch.setattr("os.fsync", full_disk)
        writer.checkpoint()
        return load(options.output)

    monkeypatch.setattr(layerscope.runner, "profile", measure)
    assert profile(output) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: disk full while writing {output}: what was ")
    assert err.count("\n") == 1
    kept = load(output)
    assert kept.header.status == "partial"
    assert kept.samples.height == handmade.samples(("anchor",)).height


def full_disk(_: int) -> None:
    """Fail as ``os.fsync`` does on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")
