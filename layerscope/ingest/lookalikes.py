"""What is often taken for a trace and is none: by what it is told, and what to do.

Each answer completes the sentence "FILE is ...".
"""

import re
from typing import Final

READABLE: Final = (
    "PyTorch's profiler (JSON), Nsight Systems (.sqlite), rocprofv3 (csv, json, rocpd "
    ".db, pftrace), Perfetto or Proton"
)
"""Whose traces can be read, for messages and help."""

_UNPACK: Final = "unpack it, and give what is in it"
_NO_TIMES: Final = "it holds sums, and no times at which kernels ran"
_EXPORT: Final = "give what `nsys export --type sqlite` makes of it"
_PICKLE: Final = "a pickle, such as a memory snapshot of torch; give a trace"
_ALONE: Final = (
    "for which every kernel ran alone; record with Nsight Systems or PyTorch's profiler"
)
_NSYS_JSON: Final = "an Nsight Systems export to JSON; give `nsys export --type sqlite`"
_TOO_DEEP: Final = f"packed more often than traces are; {_UNPACK}"
_UTF_16: Final = "text in UTF-16; save it as UTF-8"

_BEGINNINGS: Final[dict[bytes, str]] = {
    b"version https://git-lfs": (
        "a Git LFS pointer, not the file it stands for; fetch that by `git lfs pull`"
    ),
    b"NVR\0": f"an Nsight Compute report, {_ALONE}",
    b"BZh": f"packed by bzip2; {_UNPACK}",
    b"\xfd7zXZ\0": f"packed by xz; {_UNPACK}",
    b"\x04\x22\x4d\x18": f"packed by lz4; {_UNPACK}",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive; {_UNPACK}",
    b"PK\x03\x04": f"a zip archive within another archive; {_UNPACK}",
    b"PK\x05\x06": "a zip archive of no files; give one that holds a trace",
    b"\x1f\x8b": _TOO_DEEP,
    b"\x28\xb5\x2f\xfd": _TOO_DEEP,
    b"PAR1": "a Parquet table; give the trace that it was made from",
    b"\x80\x02": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
    b"\x7fELF": "a program or a library; give a trace",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}
"""By the first bytes."""

_TAR_AT, _TAR = 257, b"ustar"

_JSON_KEYS: Final[dict[frozenset[bytes], str]] = {
    frozenset({b"frame", b"metrics"}): (
        f"a tree of Triton's Proton: {_NO_TIMES}; record with "
        'proton.start(data="trace")'
    ),
    frozenset({b"format_version", b"study"}): (
        "the header of a layerscope run; `layerscope show` takes its folder"
    ),
    frozenset({b"segments", b"device_traces"}): (
        "a memory snapshot of torch; give a trace of torch.profiler"
    ),
    frozenset({b"schema", b"nodes"}): (
        "an execution trace of PyTorch (Chakra): it holds no times of kernels; give "
        "the trace that torch.profiler wrote beside it"
    ),
    frozenset({b"CudaEvent"}): _NSYS_JSON,
    frozenset({b"TargetInfoGpu"}): _NSYS_JSON,
    frozenset({b"$schema", b"profiles", b"shared"}): (
        "a speedscope profile; give the trace that it was made from"
    ),
}
"""By the keys of JSON that has no events."""

_WITHIN_KERNELS: Final = b"Finalization Time (ns)"

_COLUMNS: Final[dict[frozenset[str], str]] = {
    frozenset({"total time (ns)"}): (
        f"a summary of Nsight Systems: {_NO_TIMES}; give its .sqlite"
    ),
    frozenset({"start (ns)", "duration (ns)"}): (
        "a table of `nsys stats`; give the .sqlite that it was made from"
    ),
    frozenset({"beginns", "endns"}): (
        "a table of rocprof 1 or 2; record with rocprofv3"
    ),
    frozenset({"kernel name", "metric name"}): f"a table of Nsight Compute, {_ALONE}",
}
"""By the columns of a table."""

_SUFFIXES: Final[dict[str, str]] = {
    ".nsys-rep": f"an Nsight Systems report; {_EXPORT}",
    ".qdrep": f"an Nsight Systems report; {_EXPORT}",
    ".qdstrm": (
        "what Nsight Systems could not finish; import it with QdstrmImporter, then "
        + _EXPORT
    ),
}
"""By name, which is asked only where the content tells nothing."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_PAGE: Final = re.compile(rb"<(!doctype|html|head|body)", re.IGNORECASE)
_LOOKED_AT_BYTES: Final = 4096


def is_binary(head: bytes) -> bool:
    """Whether bytes occur near the beginning that text does not have."""
    return bool(_CONTROL.search(head, 0, _LOOKED_AT_BYTES))


def by_beginning(head: bytes) -> str:
    """What a file is that begins with `head`, or an empty string."""
    if head[_TAR_AT:].startswith(_TAR):
        return f"a tar archive; {_UNPACK}"
    return next(
        (what for start, what in _BEGINNINGS.items() if head.startswith(start)), ""
    )


def by_keys(keys: set[bytes], *, has_events: bool) -> str:
    """What JSON with `keys` is, or an empty string."""
    if has_events:
        return (
            "a trace of Triton's Proton of what happens within kernels; give one that "
            "was recorded without the instrumentation backend"
            if _WITHIN_KERNELS in keys
            else ""
        )
    return next((what for wanted, what in _JSON_KEYS.items() if wanted <= keys), "")


def by_columns(columns: set[str]) -> str:
    """What a table with `columns`, in lower case, is, or an empty string."""
    return next((what for wanted, what in _COLUMNS.items() if wanted <= columns), "")


def otherwise(head: bytes, suffix: str) -> str:
    """What a file is that nothing else could tell."""
    if suffix.lower() in _SUFFIXES:
        return _SUFFIXES[suffix.lower()]
    text = head.lstrip()
    if _PAGE.match(text):
        return "a page of the web, perhaps one that asks to sign in; fetch the file"
    if text.startswith((b"{", b"[")):
        kind = "JSON, but no trace of kernels"
    elif is_binary(head):
        kind = "in no known format"
    else:
        kind = "text, and no trace"
    return f"{kind}; give one of {READABLE}"
