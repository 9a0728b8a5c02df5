import gzip
import shutil
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError
from layerscope.ingest.content import contents_of
from layerscope.ingest.rocprof_csv_set import Part, part_of, prefix_of, siblings
from layerscope.trace import TraceLog
from tests.ingest.reading import read
from tests.ingest.rocprof_tables import write_all


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with all files of one process."""
    return write_all(tmp_path)


def test_of_files_that_differ_in_packing_one_is_taken(run: Path) -> None:
    """A packed copy beside a file gives no second set of calls."""
    plain = read(run / "70_kernel_trace.csv")
    path = run / "70_hip_api_trace.csv"
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    assert_frame_equal(read(run / "70_kernel_trace.csv").calls, plain.calls)


def test_files_of_another_process_are_left_alone(run: Path) -> None:
    """Only those of the same prefix belong together."""
    shutil.copy(run / "70_hip_api_trace.csv", run / "71_hip_api_trace.csv")
    (content,) = contents_of(run / "71_hip_api_trace.csv")
    assert siblings(content, TraceLog()) == []


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('"Dispatch_Id","Kernel_Name","Counter_Name","Start_Timestamp"', "counters"),
        ('"Name","Calls","TotalDurationNs","AverageNs"', "sums of a profile"),
        ('"Kind","Operation","Allocation_Size"', "allocations"),
        ('"Node_Id","Agent_Type"', "describes devices only"),
        ('"a","b"', "is no CSV of rocprofv3"),
    ],
)
def test_other_tables_are_named(tmp_path: Path, header: str, said: str) -> None:
    """What holds no kernels is refused in one line that says what it is."""
    path = tmp_path / "other.csv"
    path.write_text(f"{header}\n1,2\n")
    with pytest.raises(InputError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} ")


def test_parts_are_told_by_their_header(run: Path) -> None:
    """Never by the name of the file."""
    parts = {}
    for path in run.iterdir():
        (content,) = contents_of(path)
        parts[path.stem.removeprefix("70_")] = part_of(content)
    assert parts == {
        "kernel_trace": Part.KERNELS,
        "hip_api_trace": Part.CALLS,
        "hsa_api_trace": Part.CALLS,
        "marker_api_trace": Part.CALLS,
        "memory_copy_trace": Part.COPIES,
        "agent_info": Part.AGENTS,
        "kernel_stats": Part.SUMMARY,
    }


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("kernel_trace.csv", ""),
        ("908_kernel_trace.csv", "908"),
        ("my_run_hip_api_trace.csv.gz", "my_run"),
        ("x/y/out_Memory_Copy_Trace.CSV", "out"),
        ("decode_hip_trace.csv", "decode"),
        ("results.csv", None),
        ("kernel_trace.json", None),
    ],
)
def test_prefixes_are_what_names_have_in_common(name: str, prefix: str | None) -> None:
    """The part and the packing are cut, whatever their case."""
    assert prefix_of(name) == prefix
