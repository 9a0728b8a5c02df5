import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from layerscope.cli.main import main
from layerscope.environment import DeviceFacts
from layerscope.graphs import device as devices
from layerscope.graphs.skeleton import Stage
from layerscope.run_header import Bound, ReadCost
from layerscope.runner import limits

GPU = torch.device("cuda", 0)
READ = ReadCost(bytes=1_000_000, duration_ns=2_000.0)


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, tuple[Stage, ...]]]:
    """Stands a GPU in, and keeps the chains that would be measured there."""
    seen: list[Mapping[str, tuple[Stage, ...]]] = []
    facts = DeviceFacts(type="cuda", name="Paper GPU", architecture="sm_90")

    def bounds(chains: Mapping[str, tuple[Stage, ...]], *_: object) -> Any:  # noqa: ANN401 (bounds)
        seen.append(chains)
        return tuple(
            Bound(arm="", name=name, pass_ns=5e4, low_ns=4e4, high_ns=6e4, **size)
            for name, size in (
                ("no PDL", {"kernels": 14, "bytes": 10**6}),
                ("one read", {"kernels": 1, "bytes": 10**6}),
            )
        )

    monkeypatch.setattr(devices, "resolve", lambda _: GPU)
    monkeypatch.setattr(devices, "facts", lambda _: facts)
    monkeypatch.setattr(devices, "refusals", lambda _: [])
    monkeypatch.setattr(limits, "check_device", lambda _: None)
    monkeypatch.setattr(limits, "measure_bounds", bounds)
    monkeypatch.setattr(limits, "measure_reads", lambda *_: (READ,))
    return seen


def test_limits_of_several_ranks_are_tables(
    chains: list[Mapping[str, tuple[Stage, ...]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One table a number of ranks; the JSON goes to the file too."""
    arguments = ["--tp", "1,4", "--shard-shaped", "--json", "-o", f"{tmp_path}/l.json"]
    assert main(["limits", "--model", "llama-3.1-8b", *arguments]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "l.json").read_text(encoding="utf-8") == out
    assert [table["title"] for table in json.loads(out)["tables"]] == [
        "the whole layer: a pass of 1.000 MB",
        "slice of one rank of 4: a pass of 1.000 MB",
        "cold reads by one kernel, its launch included",
    ]
    qkv = [chain[""][1].bytes for chain in chains]
    assert qkv == [2 * 4096 * 48 * 128, 2 * 4096 * 12 * 128]


@pytest.mark.usefixtures("chains")
def test_limits_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json, in microseconds."""
    assert main(["limits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "limits of qwen3-30b-a3b, layer 0"
    assert "the whole layer: a pass of 1.000 MB, 41 experts, in µs" in lines
    assert any(line.split()[:4] == ["no", "PDL", "14", "50.00"] for line in lines)


@pytest.mark.usefixtures("chains")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tp", "two"], "--tp 'two' is neither a number of ranks nor several"),
        (["--tp", "1", "--shard-shaped"], "--shard-shaped is one rank's slice"),
        (["--tp", "2"], "--tp 2 needs 2 GPUs"),
        (["-o", "/nowhere/limits.json"], "cannot write /nowhere/limits.json: No such"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, and nothing on standard output."""
    assert main(["limits", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"error: {message}")


@pytest.mark.usefixtures("chains")
def test_a_gpu_that_others_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As profile refuses it: the times would not be the machine's."""
    monkeypatch.setattr(devices, "refusals", lambda _: ["others compute", "MIG is on"])
    assert main(["limits"]) == 1
    assert capsys.readouterr().err == "error: others compute; MIG is on\n"


def test_a_cpu_has_no_limits(capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what is needed."""
    assert main(["limits", "--device", "cpu"]) == 1
    assert capsys.readouterr().err == (
        "error: limits are measured on an NVIDIA GPU, and this is none; run it on one\n"
    )
