import json
import sys
from pathlib import Path

import pytest

from benchmarks.ingest import LAYERSCOPE, main, reading
from benchmarks.kineto_traces import Truth, write_trace
from layerscope.ingest.read import ReadOptions, read_trace


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_traces_are_what_is_said_of_them(name: str, tmp_path: Path) -> None:
    """Kernels of 8 µs and gaps of 0.15 µs, over a step and a half, and the entries."""
    truth = write_trace(tmp_path / name, 25_500)
    assert truth == Truth(
        kernels=25_500,
        entries=153_005,
        kernel_ns=204_000_000,
        idle_ns=3_824_700,
    )
    found = reading(Path(sys.executable), LAYERSCOPE, tmp_path / name)
    assert (found.kernels, found.kernel_ns, found.idle_ns) == (
        truth.kernels,
        truth.kernel_ns,
        truth.idle_ns,
    )
    trace = read_trace(tmp_path / name, ReadOptions(cache=False))
    assert trace.calls.height == truth.kernels
    assert trace.notes == ()


def test_entries_are_counted(tmp_path: Path) -> None:
    """The file is JSON with as many as are said."""
    truth = write_trace(tmp_path / "trace.json", 10)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == truth.entries == 65


def test_both_readers_are_told_beside_the_truth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one of them has wrong is said."""
    told = {"read_s": 2.0, "processor_s": 3.0, "peak_mb": 100.0}
    told |= {"kernels": 10, "kernel_ns": 70_000, "idle_ns": 1_350}
    code = f"print('{json.dumps(told)}')"
    monkeypatch.setattr("benchmarks.ingest.HTA", code)
    arguments = ["ingest", "--kernels", "10", "--sizes", "1", "--hta", sys.executable]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    said = capsys.readouterr().out
    assert said.count("65 entries") == 2
    assert said.count("HTA / layerscope") == 2
    assert said.count("kernel_ns 70,000, where 80,000 is true") == 2
    assert "idle_ns" not in said
