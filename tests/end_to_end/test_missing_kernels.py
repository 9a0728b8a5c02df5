"""Traces that lack kernels: nothing that is printed says when their device was idle."""

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.cli.main import main
from tests.end_to_end.test_known_truth import kernel as kineto_kernel
from tests.end_to_end.test_known_truth import launch, written
from tests.ingest.databases import Row, nsys_file
from tests.ingest.test_nsys import CALLS, KERNELS, call, kernel, pid

REPLAYS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MISSING = "kernels are missing: a gap is time in which none was recorded"


def analyzed(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``analyze --json`` prints of a file."""
    assert main(["analyze", str(path), "--no-cache", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def causes(document: dict[str, Any]) -> dict[str, int]:
    """The gaps by what is said of them."""
    found: dict[str, int] = {}
    for table in document["tables"]:
        if table["title"].startswith("gaps by the kernel"):
            for row in table["rows"]:
                found[row["cause"]] = found.get(row["cause"], 0) + row["gap_ns"]
    return found


def graph_level(path: Path, *, idle_ns: int = 0) -> Path:
    """50 kernels of 3 µs and between them 49 replays of 97 µs, one row each.

    `idle_ns` after all of them, another kernel is launched, and runs.
    """
    kernels: list[Row] = []
    replays: list[Row] = []
    calls: list[Row] = []
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pid(9)}
    for number in range(50):
        at = 100_000 * number + 10_000
        kernels.append(kernel(at, at + 3_000, 2 * number))
        calls.append(call(at - 4_000, at - 2_000, 2 * number, "cudaLaunchKernel"))
        if number < 49:
            span = {"start": at + 3_000, "end": at + 100_000}
            replays.append(
                {**span, "graphId": 7, "correlationId": 2 * number + 1, **place}
            )
    if idle_ns:
        at = int(kernels[-1]["end"]) + idle_ns
        kernels.append(kernel(at, at + 3_000, 200))
        calls.append(call(at - 4_000, at - 2_000, 200, "cudaLaunchKernel"))
    return nsys_file(path, {KERNELS: kernels, REPLAYS: replays, CALLS: calls})


def test_replays_that_are_one_row_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Time in which graphs ran is no gap of a known cause, and no part of a verdict."""
    found = analyzed(graph_level(tmp_path / "a.sqlite"), capsys)
    verdict = found["headlines"]["no steps found: the whole device"]
    assert verdict.startswith("unknown: replays of CUDA graphs whose kernels the file")
    assert "%" not in verdict
    assert "where the time goes" not in {table["title"] for table in found["tables"]}
    assert causes(found) == {"unknown: inside a graph replay": 49 * 97_000}
    assert "what was recorded ran for 150.0 µs of it" in found["facts"]["time"]
    assert any(note.startswith(MISSING) for note in found["notes"])


def test_gaps_outside_of_such_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no graph ran, a gap has its cause: all work of the time is known."""
    found = analyzed(graph_level(tmp_path / "a.sqlite", idle_ns=500_000), capsys)
    assert causes(found) == {
        "unknown: inside a graph replay": 49 * 97_000,
        "late launch": 500_000,
    }


def test_replays_of_which_kernels_were_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the replays show no kernels: no gap has a cause, no verdict has parts."""
    events = []
    for number in range(1, 21):
        at = 100_000 * number
        events.append(launch(at - 3_000, number, "cudaGraphLaunch"))
        if number % 2:
            events += [
                kineto_kernel(at + 10_000 * each, 9_000, number) for each in range(9)
            ]
    found = analyzed(written(tmp_path, events), capsys)
    (verdict,) = (
        text for text in found["headlines"].values() if text.startswith("unknown: ")
    )
    assert verdict == "unknown: launches of graphs without any kernel"
    assert "where the time goes" not in {table["title"] for table in found["tables"]}
    assert set(causes(found)) == {"unknown"}
    assert any(note.startswith(MISSING) for note in found["notes"])
