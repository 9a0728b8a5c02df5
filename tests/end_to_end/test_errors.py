import errno
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import polars as pl
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from layerscope.cli.main import main
from layerscope.graphs import memory
from layerscope.run import FILES, SAMPLES_FILE, load
from layerscope.runner import anchors, flow, rounds

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = (
    *("profile", "--device", "cpu", "--arms", "reference", "--model", "tiny-moe"),
    *("--context", "32", "--samples", "24", "--passes", "4", "--recorder", "none"),
)
OPENING = r"4 passes of weights and KV: [\d.]+ .?B; a pass must move .*[\d.]+ .?B\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, in which runs would be made by default."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written: nothing to stdout, one line to stderr after the opening."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    line = re.sub(rf"\A{OPENING}", "", err).removesuffix("\n")
    assert "\n" not in line
    return line


def has_samples(folder: Path) -> bool:
    """Whether a checkpoint of the run has kept any."""
    path = folder / SAMPLES_FILE
    return path.exists() and not pl.read_parquet(path).is_empty()


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The report of the run in `folder`."""
    assert main(["show", str(folder)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "refrence"], "error: unknown arm 'refrence'; did you mean ref"),
        (["--model", "./no-model"], "error: no-model: no such folder"),
        (["--layer", "4"], "error: layer 4 is out of range: tiny-moe has layers 0"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_is_made(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """Exit code 2, one line that names it, and no folder."""
    assert main([*SMALL, *arguments]) == 2
    assert one_line(capsys).startswith(message)
    assert list(here.iterdir()) == []


def test_a_truncated_checkpoint_is_named(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A download that broke off is exit code 2, and the run's folder goes again."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    model = tmp_path / "model"
    config = LlamaConfig(num_hidden_layers=1, **sizes, **heads)
    LlamaForCausalLM(config).save_pretrained(model)
    weights = model / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    capsys.readouterr()
    assert main([*SMALL, "--model", str(model), "-o", str(here / "run")]) == 2
    assert one_line(capsys).startswith(f"error: {weights}: is truncated or malformed (")
    assert list(here.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_the_users_error(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--device cuda`` without one is exit code 2, and says what to do."""
    assert main([*SMALL, "--device", "cuda"]) == 2
    line = one_line(capsys)
    assert line.startswith("error: --device cuda: ")
    assert line.endswith("; use --device cpu")
    assert list(here.iterdir()) == []


def test_a_layer_that_does_not_fit_is_refused_before_it_is_made(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Too little free memory is exit code 1, and no folder."""
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: 0)
    assert main([*SMALL]) == 1
    assert "GB and 0.0 GB are free; use fewer --passes" in one_line(capsys)
    assert list(here.iterdir()) == []


def allocates_too_much(*_: object) -> NoReturn:
    """Fail as torch does where the host has no memory left."""
    torch.empty(1 << 60, dtype=torch.uint8)
    raise AssertionError


def test_memory_that_runs_out_for_the_weights_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and one line; a run without samples tells nothing and goes."""
    monkeypatch.setattr(flow, "make_problem", allocates_too_much)
    assert main([*SMALL, "-o", str(here / "run")]) == 1
    assert one_line(capsys).startswith("error: out of memory, ")
    assert list(here.iterdir()) == []


def test_memory_that_runs_out_later_leaves_the_samples_before(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and one line; the partial run gives the reason."""
    enqueue = rounds.enqueue

    def enqueued(*arguments: object) -> object:
        if arguments[1] == 3:
            allocates_too_much()
        return enqueue(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(anchors, "enqueue", enqueued)
    assert main([*SMALL, "-o", str(here / "run")]) == 1
    assert one_line(capsys).startswith("error: out of memory, ")
    run = load(here / "run")
    assert run.samples["round"].unique().sort().to_list() == [0, 1, 2]
    assert "out of memory" in shown(here / "run", capsys)


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, one line that says what is kept, and no half-written file."""
    folder, fsync = here / "run", os.fsync

    def full(descriptor: int) -> None:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if is_file and has_samples(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    budget = ("--captures", "3", "--time-budget", "1")
    assert main([*SMALL, *budget, "-o", str(folder)]) == 1
    line = one_line(capsys)
    assert line.startswith(f"error: disk full while writing {folder}: what was ")
    assert line.endswith("is kept there; free some space and run again")
    assert {path.name for path in folder.iterdir()} == set(FILES)
    run = load(folder)
    assert run.header.status == "partial"
    assert not run.samples.is_empty()
    assert "partial" in shown(folder, capsys)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Children can be interrupted even where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_real_signal_leaves_a_run_that_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """Exit code 130 and one line, and all samples up to then."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup")
    folder = tmp_path / "run"
    endless = ("--captures", "1000", "--time-budget", "1000")
    program = subprocess.Popen(
        [sys.executable, "-m", "layerscope", *SMALL, *endless, "-o", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        while program.poll() is None and not has_samples(folder):
            time.sleep(0.05)
        program.send_signal(number)
        out, err = program.communicate()
    assert (program.returncode, out) == (130, "")
    line = f"interrupted; see what was kept: layerscope show {re.escape(str(folder))}\n"
    assert re.fullmatch(f"{OPENING}{line}", err)
    run = load(folder)
    assert (run.header.status, run.header.status_reason) == ("partial", "interrupted")
    assert not run.samples.is_empty()
    assert "interrupted" in shown(folder, capsys)
