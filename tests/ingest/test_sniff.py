import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.ingest.content import HEAD_BYTES, contents_of
from layerscope.ingest.formats import Format
from layerscope.ingest.sniff import sniff
from tests.ingest.packed import gzipped, written, zipped

EVENT = b'{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "ts": 1, "dur": 2}'


def database(path: Path, *tables: str) -> Path:
    """An SQLite file with empty tables of these names."""
    with closing(sqlite3.connect(path)) as connection:
        for table in tables:
            connection.execute(f'CREATE TABLE "{table}" (id INTEGER)')
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        (b'{"schemaVersion": 1, "traceEvents": [%b]}' % EVENT, Format.KINETO),
        (b'{"distributedInfo": {"rank": 0}, "tr', Format.KINETO),
        (b'\xef\xbb\xbf\n {"traceEvents": []}', Format.KINETO),
        (b"[%b,\n%b" % (EVENT, EVENT), Format.KINETO),
        (b'nd": 3}, %b, ' % EVENT, Format.KINETO),
        (b'{"displayTimeUnit":"us","traceEvents":[{"cat"', Format.PROTON),
        (b'{"args":{"call_stack":[]},"name":"k","ph":"X","tid":7}', Format.PROTON),
        (b'{"rocprofiler-sdk-tool":[{"metadata":', Format.ROCPROF_JSON),
        (
            b'"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\n',
            Format.ROCPROF_CSV,
        ),
        (b"\x0a\x56\x32\x4e\x10\x06\x0a\x0a\x08\x06", Format.PERFETTO),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzipped])
def test_formats_are_told_by_content(
    tmp_path: Path, text: bytes, format_: Format, pack: type[bytes]
) -> None:
    """A file that is called .txt and packed or not is what it holds."""
    [content] = contents_of(written(tmp_path / "trace.txt", pack(text)))
    assert sniff(content) is format_


@pytest.mark.parametrize(
    ("table", "format_"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", Format.NSYS),
        ("rocpd_kernel_dispatch_0000_1111", Format.ROCPD),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_databases_are_told_by_their_tables(
    tmp_path: Path, table: str, format_: Format, *, is_packed: bool
) -> None:
    """Packed ones too."""
    path = database(tmp_path / "trace.json", table)
    if is_packed:
        path = written(tmp_path / "packed", gzipped(path.read_bytes()))
    assert sniff(contents_of(path)[0]) is format_


def test_events_after_a_long_preamble_are_found(tmp_path: Path) -> None:
    """Environment and jobs may be described for longer than the head is."""
    text = b'{"job": "%b", "traceEvents": [%b]}' % (b"x" * 2 * HEAD_BYTES, EVENT)
    [content] = contents_of(written(tmp_path / "trace", text))
    assert sniff(content) is Format.KINETO


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        (b'\n[{"children": [], "frame": {}, "metrics": {}}]', "a tree of .* Proton"),
        (b'{"format_version": 3, "study": {}}', "the header of a layerscope run"),
        (b'{"segments": [], "device_traces": []}', "a memory snapshot of torch"),
        (b'{"schema": "1.0.2", "nodes": []}', "an execution trace of PyTorch"),
        (b'{"CudaEvent":{"startNs":"1"}}', "an Nsight Systems export to JSON"),
        (b'{"$schema": "", "profiles": [], "shared": {}}', "a speedscope profile"),
        (
            b'{"traceEvents": [{"ph": "X", "args": {"Finalization Time (ns)": 1}}]}',
            "of what happens within kernels",
        ),
        (b'{"dependencies": {}}', "JSON, but no trace of kernels"),
        (b"[1, 2]", "JSON, but no trace of kernels"),
        (b"<!DOCTYPE html><html>", "a page of the web"),
        (b"NVR\0\x01", "an Nsight Compute report"),
        (b"\x80\x04\x95", "a pickle"),
        (b"PAR1\x15", "a Parquet table"),
        (b"BZh91AY", "packed by bzip2"),
        (gzipped(b"PK\x03\x04"), "a zip archive within another archive; unpack it"),
        (gzipped(b"PK\x05\x06"), "a zip archive of no files"),
        (b"\0" * 257 + b"ustar\x0000", "a tar archive"),
        (b"\xff\xfe{\0", "text in UTF-16"),
        (b"Time (%),Total Time (ns),Name\n", "a summary of Nsight Systems"),
        (b"Start (ns),Duration (ns),CorrId\n", "a table of `nsys stats`"),
        (b"Index,KernelName,BeginNs,EndNs\n", "a table of rocprof 1 or 2"),
        (b'"ID","Kernel Name","Metric Name"\n', "a table of Nsight Compute"),
        (b"import torch\n", "text, and no trace"),
        (b"\x00\x01\x02", "in no known format"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    """The message says what the file is, in one line."""
    [content] = contents_of(written(tmp_path / "trace.json", text))
    with pytest.raises(InputError, match=message) as caught:
        sniff(content)
    assert str(caught.value).startswith(f"{content.name} is ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("rocpd_op", "rocmProfileData"),
        ("KERN", "rocprof version 1"),
        ("compute_kernel", "rocprof-compute"),
        ("StringIds", "without work of a GPU"),
        ("songs", "of another program"),
    ],
)
def test_other_databases_are_named(tmp_path: Path, table: str, message: str) -> None:
    """What shares a suffix or a name with a trace is no trace."""
    [content] = contents_of(database(tmp_path / "trace.db", table))
    with pytest.raises(InputError, match=message):
        sniff(content)


def test_a_report_that_only_its_tool_reads_is_told_by_name(tmp_path: Path) -> None:
    """Its bytes say nothing, so the name is asked at last."""
    [content] = contents_of(written(tmp_path / "report1.nsys-rep", b"\x01\x02\x03"))
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        sniff(content)


def test_what_is_packed_too_deep_is_refused(tmp_path: Path) -> None:
    """Three layers are more than any tool makes."""
    packed = gzipped(gzipped(gzipped(EVENT)))
    [content] = contents_of(written(tmp_path / "trace", packed))
    with pytest.raises(InputError, match="packed more often than traces are"):
        sniff(content)


def test_an_archive_of_nothing_is_refused(tmp_path: Path) -> None:
    """What it held is lost."""
    [content] = contents_of(written(tmp_path / "trace", gzipped(EVENT)[:10]))
    with pytest.raises(InputError, match="unpacks to nothing"):
        sniff(content)


def test_a_member_of_an_archive_is_named_with_it(tmp_path: Path) -> None:
    """Users see which of the files is meant."""
    path = zipped(tmp_path / "a.zip", ("b/c.txt", b"text"))
    [content] = contents_of(path)
    with pytest.raises(InputError, match=r"a\.zip/b/c\.txt is text, and no trace"):
        sniff(content)


def test_a_zip_in_a_zip_is_named(tmp_path: Path) -> None:
    """It is neither cut nor damaged."""
    inner = zipped(tmp_path / "inner.zip", ("a.json", EVENT)).read_bytes()
    [content] = contents_of(zipped(tmp_path / "outer.zip", ("inner.zip", inner)))
    message = r"outer\.zip/inner\.zip is a zip archive within another archive; unpack"
    with pytest.raises(InputError, match=message):
        sniff(content)
