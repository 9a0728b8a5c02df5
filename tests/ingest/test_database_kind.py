from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.ingest.content import contents_of
from layerscope.ingest.database_kind import sqlite_kind
from layerscope.ingest.formats import Format
from layerscope.trace import TraceLog
from tests.ingest.databases import database_file
from tests.ingest.real_traces import real_trace

GUID = "_0198f0a2_77b5_7cc1_b5a4_3f2f5d1a9c11"


@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        (["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"], Format.NSYS),
        (["StringIds", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"], Format.NSYS),
        ([f"rocpd_string{GUID}", f"rocpd_kernel_dispatch{GUID}"], Format.ROCPD),
        (["rocpd_kernel_dispatch"], Format.ROCPD),
    ],
)
def test_traces_are_told_by_their_tables(
    tmp_path: Path, tables: list[str], kind: Format
) -> None:
    """The tables of kernels or replays say which tool a file is of."""
    path = database_file(tmp_path / "a", {name: [] for name in tables})
    assert sqlite_kind(path, "a") == kind


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ([], "an SQLite file without tables; export or record it again"),
        (
            ["ENUM_CUDA_MEM_KIND", "META_DATA_EXPORT", "StringIds"],
            (
                "an export of Nsight Systems without work of a GPU (it has "
                "META_DATA_EXPORT, StringIds); record with nsys profile -t cuda,nvtx"
            ),
        ),
        (
            [f"rocpd_string{GUID}"],
            (
                "a rocpd database without kernels (it has "
                "rocpd_string_0198f0a2_77b5_7cc1_b5a4_3f2); "
                "record with rocprofv3 --kernel-trace"
            ),
        ),
        (
            ["rocpd_op", "rocpd_api", "rocpd_string", "rocpd_metadata"],
            (
                "a database of rocmProfileData (RPD), which only shares names with "
                "rocpd; record with rocprofv3 --kernel-trace, or with PyTorch's "
                "profiler"
            ),
        ),
        (
            ["compute_workload", "compute_dispatch"],
            (
                "a database of rocprof-compute, which holds counters and no times; "
                "record with rocprofv3 --kernel-trace"
            ),
        ),
        (
            ["KERN"],
            (
                "a database of rocprof version 1, which is not read; record with "
                "rocprofv3 --kernel-trace"
            ),
        ),
        (
            ["a", "b", "c", "d", "e\x1b[2J", "f", "g", "h"],
            (
                "an SQLite file of another program (it has a, b, c, d, e?[2J, f and 2 "
                "more); give an export of Nsight Systems (nsys export -t sqlite) or a "
                "rocpd database of rocprofv3"
            ),
        ),
    ],
)
def test_what_only_looks_like_a_trace_is_named(
    tmp_path: Path, tables: list[str], what: str
) -> None:
    """One line says what a database is and what to give instead."""
    path = database_file(tmp_path / "a", {name: [] for name in tables})
    with pytest.raises(InputError) as caught:
        sqlite_kind(path, "some.db")
    assert str(caught.value) == f"some.db is {what}"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("JACC.jl/report1.sqlite", "an export of Nsight Systems without work of a GPU"),
        ("JACC.jl/results.db", "a database of rocprof version 1"),
        (
            "DynamicViT/nsys_profile.sqlite",
            "an export of Nsight Systems without work of a GPU",
        ),
        (
            "lighttransport-gemm/profile.sqlite",
            "an export of Nsight Systems without work of a GPU",
        ),
        ("rocmProfileData/mytrace.rpd.gz", "a database of rocmProfileData (RPD)"),
        (
            "roc-optiq/rocprof_compute_23ed6f36.db.gz",
            "a database of rocprof-compute",
        ),
    ],
)
def test_real_look_alikes_are_named(name: str, what: str) -> None:
    """Databases of other tools, as users have them, are refused as what they are."""
    path = real_trace(name)
    (content,) = contents_of(path)
    with (
        content.on_disk(TraceLog()) as plain,
        pytest.raises(InputError) as caught,
    ):
        sqlite_kind(plain, content.name)
    assert str(caught.value).startswith(f"{path} is {what}")
