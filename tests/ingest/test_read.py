import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from layerscope.errors import InputError
from layerscope.ingest import cache, kineto
from layerscope.ingest.content import Content
from layerscope.ingest.read import ReadOptions, Skipped, read_trace, read_traces
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceLog, TraceNote
from tests.ingest.packed import gzipped, written, zipped

KERNELS_CSV = b"""\
Kind,Agent_Id,Queue_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp
KERNEL_DISPATCH,Agent 4,1,gemm,7,1000,1800
"""
CALLS_CSV = b"""\
Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp
HIP_RUNTIME_API,hipLaunchKernel,15,16,7,900,950
"""


def kineto_text(name: str = "gemm", rank: int | None = None, **more: Any) -> bytes:  # noqa: ANN401 (JSON)
    """A trace of one kernel."""
    args = {"device": 0, "stream": 7}
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": 1, "dur": 2, "args": args}
    ranks = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    events = {"traceEvents": [{**event, "pid": 0, "tid": 7, **more}]}
    return json.dumps({"schemaVersion": 1, **ranks, **events}).encode()


def kernels(trace: Trace) -> list[str]:
    """Names of its kernels."""
    return trace.kernels["name"].to_list()


@dataclass
class Phases:
    """Collects the names of phases, and how far they came."""

    begun: list[tuple[str, int]] = field(default_factory=list)
    steps: int = 0

    def phase(self, name: str, total: int) -> None:
        """Note it."""
        self.begun.append((name, total))
        self.steps = 0

    def advance(self, steps: int = 1) -> None:
        """Note it."""
        self.steps += steps


def test_a_file_gives_its_trace(tmp_path: Path) -> None:
    """Whatever it is called, and with the path that was given."""
    path = written(tmp_path / "trace.bin", gzipped(kineto_text()))
    trace = read_trace(path)
    assert kernels(trace) == ["gemm"]
    assert trace.source.path == str(path)
    assert trace.source.format == "Kineto JSON"


def test_paths_are_read_in_their_order(tmp_path: Path) -> None:
    """A path that is given twice is read once."""
    paths = [
        written(tmp_path / name, kineto_text(name)) for name in ("second", "first")
    ]
    reading = read_traces([*paths, paths[0]])
    assert [kernels(trace) for trace in reading.traces] == [["second"], ["first"]]
    assert reading.skipped == ()


def test_a_folder_gives_its_traces_by_rank(tmp_path: Path) -> None:
    """Also those in folders within it; what is hidden or deeper is not looked at."""
    written(tmp_path / "a.json", kineto_text("rank 1", rank=1))
    written(tmp_path / "host" / "b.json", kineto_text("rank 0", rank=0))
    written(tmp_path / "0.json", kineto_text("no rank"))
    written(tmp_path / "host" / "deeper" / "c.json", kineto_text())
    written(tmp_path / ".hidden", kineto_text())
    reading = read_traces([tmp_path])
    assert [kernels(trace) for trace in reading.traces] == [
        ["rank 0"],
        ["rank 1"],
        ["no rank"],
    ]
    assert reading.skipped == ()


def test_what_is_no_trace_in_a_folder_is_skipped(tmp_path: Path) -> None:
    """Each with its reason, and the others are read."""
    written(tmp_path / "a.json", kineto_text())
    written(tmp_path / "b.txt", b"notes")
    written(tmp_path / "c.json", b"")
    reading = read_traces([tmp_path])
    assert [kernels(trace) for trace in reading.traces] == [["gemm"]]
    text, empty = reading.skipped
    assert text.name == str(tmp_path / "b.txt")
    assert text.reason.startswith("is text, and no trace; give one of ")
    reason = "is empty; give a file that holds a trace"
    assert empty == Skipped(str(tmp_path / "c.json"), reason)


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    """It says what was found, or that nothing was."""
    folder = tmp_path / "runs"
    folder.mkdir()
    with pytest.raises(InputError, match="runs holds no files"):
        read_traces([folder])
    written(folder / "a.txt", b"notes")
    message = r"runs holds no trace among 1 files, the first of which: .*a\.txt is text"
    with pytest.raises(InputError, match=message):
        read_traces([folder])


def test_a_file_that_was_named_must_be_a_trace(tmp_path: Path) -> None:
    """Other than in a folder, it is not skipped."""
    good = written(tmp_path / "a.json", kineto_text())
    with pytest.raises(InputError, match="is text, and no trace"):
        read_traces([good, written(tmp_path / "b.txt", b"notes")])


def test_no_path_is_an_error() -> None:
    """There is nothing to read."""
    with pytest.raises(InputError, match="no trace was given"):
        read_traces([])


def test_a_run_is_no_folder_of_traces(tmp_path: Path) -> None:
    """The message names the command that takes it."""
    written(tmp_path / "run.json", b"{}")
    with pytest.raises(InputError, match="is a run of layerscope; `layerscope show`"):
        read_traces([tmp_path])


def test_an_archive_gives_each_of_its_traces(tmp_path: Path) -> None:
    """By rank; what else is in it is skipped."""
    path = zipped(
        tmp_path / "ranks.zip",
        ("a.json", kineto_text("rank 1", rank=1)),
        ("b.json", kineto_text("rank 0", rank=0)),
        ("notes.txt", b"notes"),
    )
    reading = read_traces([path])
    assert [trace.source.path for trace in reading.traces] == [
        f"{path}/b.json",
        f"{path}/a.json",
    ]
    assert [each.name for each in reading.skipped] == [f"{path}/notes.txt"]


def test_one_trace_is_wanted_and_several_are_found(tmp_path: Path) -> None:
    """Which of them is meant is for the user to say."""
    for name in ("a.json", "b.json"):
        written(tmp_path / name, kineto_text(name))
    with pytest.raises(InputError, match=r"holds 2 traces, such as .*; give one"):
        read_trace(tmp_path)


def test_files_that_say_they_are_of_one_rank_are_doubted(tmp_path: Path) -> None:
    """They are two recordings, or one of them is mislabelled."""
    for name, rank in (("a", 0), ("b", 0), ("c", 1)):
        written(tmp_path / name, kineto_text(rank=rank))
    first, second, other = read_traces([tmp_path]).traces
    what = "traces beside this one that say they are of the same rank"
    assert first.notes[-1] == TraceNote(kind="doubted", what=what)
    assert second.notes[-1] == first.notes[-1]
    assert first.notes[-1] not in other.notes


def test_csv_files_of_one_process_are_one_trace(tmp_path: Path) -> None:
    """The file of kernels stands for those that are read with it."""
    kernels_csv = written(tmp_path / "host" / "7_kernel_trace.csv", KERNELS_CSV)
    calls_csv = written(tmp_path / "host" / "7_hip_api_trace.csv", CALLS_CSV)
    written(tmp_path / "host" / "8_kernel_trace.csv", KERNELS_CSV)
    reading = read_traces([tmp_path])
    assert [Path(trace.source.path).name for trace in reading.traces] == [
        "7_kernel_trace.csv",
        "8_kernel_trace.csv",
    ]
    assert reading.traces[0].calls["name"].to_list() == ["hipLaunchKernel"]
    assert reading.skipped == (Skipped(str(calls_csv), f"is read with {kernels_csv}"),)


def test_a_trace_without_work_of_a_gpu_is_refused(tmp_path: Path) -> None:
    """In a folder it is skipped, as ranks without a GPU are."""
    path = written(tmp_path / "a.json", kineto_text(cat="cpu_op"))
    with pytest.raises(InputError, match=r"\(Kineto JSON\) cannot be analysed: "):
        read_trace(path)
    written(tmp_path / "b.json", kineto_text())
    reading = read_traces([tmp_path])
    assert [each.name for each in reading.skipped] == [str(path)]


def test_progress_is_told_of_each_file(tmp_path: Path) -> None:
    """A phase is a file, its steps are the bytes on disk."""
    path = written(tmp_path / "a.json", kineto_text())
    progress = Phases()
    read_trace(path, ReadOptions(progress=progress))
    assert progress.begun == [("reading a.json", path.stat().st_size)]
    assert progress.steps == path.stat().st_size


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what the reader of Kineto is given; all files are worth keeping."""
    given: list[str] = []

    def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
        given.append(content.name)
        return kineto.read(content, log, progress)

    module = "layerscope.ingest.read"
    monkeypatch.setitem(
        __import__(module, fromlist=["_"])._READERS, "Kineto JSON", read
    )
    monkeypatch.setattr(f"{module}.SMALLEST_BYTES", 1)
    return given


def test_what_was_read_before_comes_from_the_cache(
    tmp_path: Path, readings: list[str]
) -> None:
    """Also where the file has been moved; not where it has changed."""
    path = written(tmp_path / "a.json", kineto_text())
    first = read_trace(path)
    moved = path.rename(tmp_path / "b.json")
    second = read_trace(moved)
    assert readings == [str(path)]
    assert second.kernels.equals(first.kernels)
    assert second.source.path == str(moved)
    written(moved, kineto_text("other"))
    assert kernels(read_trace(moved)) == ["other"]


def test_the_cache_is_left_alone_where_nobody_wants_it(
    tmp_path: Path, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By option, or by the environment."""
    path = written(tmp_path / "a.json", kineto_text())
    read_trace(path, ReadOptions(cache=False))
    monkeypatch.setenv(cache.VARIABLE, "off")
    read_trace(path)
    assert readings == [str(path)] * 2
