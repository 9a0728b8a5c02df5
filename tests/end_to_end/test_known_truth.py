"""Traces whose figures are known, and that other tools read wrongly or not at all.

All of them are Kineto files: what is asked is what a user sees, from the file on.
"""

import gzip
import json
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from layerscope.analyze.graph_replays import missing_nodes, short_replays
from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.placing import place
from layerscope.analyze.stream_overlaps import OverlapKind, stream_overlaps
from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from layerscope.analyze.trace_communication import communication
from layerscope.analyze.trace_shares import device_totals
from layerscope.cli.main import main
from layerscope.ingest.read import ReadOptions, read_trace

H100 = {"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}
Event = dict[str, Any]


def us(ns: int) -> float:
    """Nanoseconds as the microseconds that a trace has; JSON shows them exactly."""
    return ns / 1000


def kernel(start_ns: int, duration_ns: int, number: int, **fields: Any) -> Event:  # noqa: ANN401
    """A kernel, launched by call `number`."""
    args = {"device": 0, "context": 1, "stream": 7, "correlation": number}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": fields.pop("name", "gemm"),
        "pid": 0,
        "tid": 7,
        "ts": us(start_ns),
        "dur": us(duration_ns),
        "args": args | fields,
    }


def launch(start_ns: int, number: int, name: str = "cudaLaunchKernel") -> Event:
    """A call of the runtime that takes a microsecond."""
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": 100,
        "tid": 100,
        "ts": us(start_ns),
        "dur": us(1_000),
        "args": {"correlation": number},
    }


def document(events: Iterable[Event]) -> str:
    """A Kineto file of an H100."""
    found = {"schemaVersion": 1, "deviceProperties": [H100], "displayTimeUnit": "ms"}
    return json.dumps(found | {"traceEvents": list(events)})


@dataclass(frozen=True)
class Told:
    """What layerscope makes of a file."""

    swept: SweptTrace

    def total(self, name: str) -> int:
        """A figure of the only device."""
        return int(device_totals(self.swept.kernels)[name].item())

    def noted(self, kind: str) -> int:
        """How much was noted of a kind."""
        return sum(each.count for each in self.swept.trust.notes if each.kind == kind)


def told(path: Path) -> Told:
    """Read a file, place its kernels, and sweep over them."""
    trace = read_trace(path, ReadOptions(cache=False))
    return Told(sweep_trace(trace, place(trace, load_rules())))


def written(folder: Path, events: Iterable[Event]) -> Path:
    """A file of these events."""
    path = folder / "trace.json"
    path.write_text(document(events), encoding="utf-8")
    return path


def programmatic(names: Iterable[str]) -> list[Event]:
    """Ten bursts, 1.5 µs apart, of ten kernels of 8 µs, each 2 µs into the next.

    Sum 800 µs, union 620 µs, idle 13.5 µs, overlap 180 µs.
    """
    events = []
    for number, name in enumerate(names):
        start = 6_000 * number + (number // 10) * (2_000 + 1_500)
        events.append(kernel(start, 8_000, number + 1, name=name))
        events.append(launch(-5_000 + number, number + 1))
    return events


def test_exact_nanoseconds(tmp_path: Path) -> None:
    """Gaps of 150 ns between 17,000 kernels add up to the nanosecond."""
    events = [kernel(8_150 * each, 8_000, each + 1) for each in range(17_000)]
    found = told(written(tmp_path, events))
    assert found.total("sum_ns") == 136_000_000
    assert found.total("gap_ns") == 16_999 * 150


def test_programmatic_launches(tmp_path: Path) -> None:
    """Overlap of one stream is told as such, and idle time is what it is."""
    found = told(written(tmp_path, programmatic(["gemm", "norm"] * 50)))
    assert found.total("sum_ns") == 800_000
    assert found.total("busy_ns") == 620_000
    assert found.total("gap_ns") == 13_500
    overlaps = stream_overlaps(found.swept.kernels, found.swept.architectures())
    pairs = overlaps.filter(pl.col("overlap_ns") > 0)
    assert pairs["overlap_ns"].to_list() == [2_000] * 90
    assert set(pairs["kind"]) == {OverlapKind.PROGRAMMATIC}


def test_programmatic_launches_beside_communication(tmp_path: Path) -> None:
    """An all-reduce whose neighbours reach into it is hidden by no computation."""
    names = ["gemm", "norm", "gemm", "ncclDevKernel_AllReduce", "norm"] * 20
    found = told(written(tmp_path, programmatic(names)))
    assert communication(found.swept.kernels).hidden_ns == 0
    assert communication(found.swept.kernels).busy_ns == 160_000
    assert communication(found.swept.kernels).same_stream_ns == 180_000


def test_a_duration_that_overflowed(tmp_path: Path) -> None:
    """A kernel of 1.6 s among others of 8 µs is cut, and the log says so."""
    events = [kernel(8_000 * each, 8_000, each) for each in range(1, 78)]
    events[40]["dur"] = us(1_600_000_000)
    found = told(written(tmp_path, events))
    assert found.total("busy_ns") == 77 * 8_000
    assert found.noted("doubted") >= 1


def test_a_kernel_without_times(tmp_path: Path) -> None:
    """One at time 0 of no duration is dropped, and leaves no second of idle time."""
    events = [kernel(10**9 + 8_000 * each, 8_000, each) for each in range(1, 78)]
    found = told(written(tmp_path, [*events, kernel(0, 0, 99)]))
    assert found.total("span_ns") == 77 * 8_000
    assert found.total("gap_ns") == 0
    assert found.noted("dropped") == 1


def test_a_negative_duration(tmp_path: Path) -> None:
    """A kernel that ends before it begins is noted."""
    events = [kernel(8_000 * each, 8_000, each) for each in range(1, 78)]
    events[40]["dur"] = us(-3_000)
    found = told(written(tmp_path, events))
    what = [each.what for each in found.swept.trust.notes]
    assert any("negative duration" in each for each in what)


def replays(*, without: int | None = None) -> list[Event]:
    """Ten launches of a graph of fifty nodes, but for one node of replay 4."""
    events = []
    for replay in range(10):
        begin = 1_000_000 * replay
        events.append(launch(begin - 10_000, replay + 1, "cudaGraphLaunch"))
        events += [
            kernel(
                begin + 9_000 * node,
                8_000,
                replay + 1,
                name=f"kernel_{node}",
                **{"graph id": 3, "graph node id": node + 1},
            )
            for node in range(50)
            if (replay, node) != (4, without)
        ]
    return events


def test_graph_nodes_are_identities(tmp_path: Path) -> None:
    """Fifty nodes in ten replays are that, not ten launches; nothing is missing."""
    found = told(written(tmp_path, replays()))
    kernels = found.swept.kernels
    assert kernels["graph_node"].n_unique() == 50
    assert kernels.group_by("correlation").len()["len"].to_list() == [50] * 10
    assert missing_nodes(kernels) == 0
    assert short_replays(kernels) == 0
    assert not found.swept.trust.notes


def test_a_graph_node_that_was_not_recorded(tmp_path: Path) -> None:
    """One kernel fewer than nodes times replays is told."""
    found = told(written(tmp_path, replays(without=20)))
    notes = [(each.what, each.count) for each in found.swept.trust.notes]
    assert notes == [("kernels fewer than graph nodes times replays", 1)]


def plain() -> str:
    """A hundred kernels of 8 µs, one after another."""
    return document(kernel(8_000 * each, 8_000, each) for each in range(1, 101))


DAMAGED: dict[str, Callable[[str], bytes]] = {
    "cut.json": lambda text: text[: len(text) // 2].encode(),
    "cut.json.gz": lambda text: gzip.compress(text.encode())[:-300],
    "control.json": lambda text: text.replace("gemm", "ge\x01mm", 1).encode(),
    "utf8.json": lambda text: text.encode().replace(b"gemm", b"ge\xffmm", 1),
    "escape.json": lambda text: text.replace("gemm", r"ge\qmm", 1).encode(),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    """What is there is read, and what was lost or mended is told."""
    path = tmp_path / name
    path.write_bytes(DAMAGED[name](plain()))
    found = told(path)
    assert found.swept.trust.notes
    kernels = found.total("kernels")
    assert kernels >= 40 if name.startswith("cut") else kernels == 100
    assert found.total("busy_ns") == kernels * 8_000


def test_a_zip_archive(tmp_path: Path) -> None:
    """A zipped trace is read as if it were not."""
    path = tmp_path / "trace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", plain())
    assert told(path).total("busy_ns") == 800_000


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    """A file of events alone is a trace too."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(json.loads(plain())["traceEvents"]), encoding="utf-8")
    assert told(path).total("busy_ns") == 800_000


def test_the_command_line_tells_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``analyze --json`` has the programmatic overlaps, and names them so."""
    path = written(tmp_path, programmatic(["gemm", "norm"] * 50))
    assert main(["analyze", str(path), "--no-cache", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    tables = {table["title"]: table["rows"] for table in document["tables"]}
    rows = tables["overlap on one stream"]
    assert {row["kind"] for row in rows} == {"consistent with PDL"}
    assert sum(row["overlapping"] for row in rows) == 90
    assert "620.0 µs" in document["facts"]["time"]
