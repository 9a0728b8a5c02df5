"""Which tool an SQLite file is from, told by its tables: names of files say little."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from layerscope.errors import InputError
from layerscope.ingest.database import opened
from layerscope.ingest.formats import Format
from layerscope.trace import TraceLog

ROCPD_KERNELS: Final = re.compile(r"rocpd_kernel_dispatch(_\w+)?")
"""One table of kernels for each process, which the id of its run tells apart."""

_NSYS_WORK: Final = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}
_NSYS: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|TARGET_INFO_\w+|StringIds|META_DATA_(EXPORT|CAPTURE)|"
    r"EXPORT_META_DATA|NVTX_EVENTS|OSRT_API|ProcessStreams"
)
_ROCPD: Final = re.compile(r"rocpd_(metadata|string|info_\w+|event|region)_\w{8,}")
_RPD: Final = {"rocpd_op", "rocpd_api"}
_ROCPROF_1: Final = {"KERN", "COPY", "HIP", "HSA"}
_ROCPROF_COMPUTE: Final = re.compile(r"compute_\w+")
_NAMED_TABLES: Final = 6
_NAME_CHARACTERS: Final = 40


def sqlite_kind(path: Path, name: str) -> Format:
    """The format of the SQLite file `path`.

    Args:
        path: a plain file.
        name: what messages call it.

    Raises:
        InputError: it is no database, or one without a trace of a GPU's work in it; the
            message says what it is, and what to give.
    """
    with opened(path, name, TraceLog()) as database:
        tables = set(database.tables)
    if tables & _NSYS_WORK:
        return Format.NSYS
    if any(ROCPD_KERNELS.fullmatch(table) for table in tables):
        return Format.ROCPD
    raise _refusal(name, tables)


def _refusal(name: str, tables: set[str]) -> InputError:
    """What a database that cannot be read is, and what to give."""
    named = _named(tables)
    if not tables:
        what = "an SQLite file without tables; export or record it again"
    elif any(_NSYS.fullmatch(table) for table in tables):
        what = (
            f"an export of Nsight Systems without work of a GPU (it has {named}); "
            "record with nsys profile -t cuda,nvtx"
        )
    elif any(_ROCPD.fullmatch(table) for table in tables):
        what = (
            f"a rocpd database without kernels (it has {named}); record with "
            "rocprofv3 --kernel-trace"
        )
    elif tables & _RPD:
        what = (
            "a database of rocmProfileData (RPD), which only shares names with rocpd; "
            "record with rocprofv3 --kernel-trace, or with PyTorch's profiler"
        )
    elif any(_ROCPROF_COMPUTE.fullmatch(table) for table in tables):
        what = (
            "a database of rocprof-compute, which holds counters and no times; "
            "record with rocprofv3 --kernel-trace"
        )
    elif tables & _ROCPROF_1:
        what = (
            "a database of rocprof version 1, which is not read; record with "
            "rocprofv3 --kernel-trace"
        )
    else:
        what = (
            f"an SQLite file of another program (it has {named}); give an export "
            "of Nsight Systems (nsys export -t sqlite) or a rocpd database of rocprofv3"
        )
    return InputError(f"{name} is {what}")


def _named(tables: Iterable[str]) -> str:
    """The first tables by name, and how many more."""
    names = sorted(table for table in tables if not table.startswith("ENUM_"))
    shown = [
        "".join(each if each.isprintable() else "?" for each in name[:_NAME_CHARACTERS])
        for name in names[:_NAMED_TABLES]
    ]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
