"""Which CSV files one run of rocprofv3 has written, and what each of them holds."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from layerscope.errors import InputError
from layerscope.ingest.content import Content, contents_of
from layerscope.ingest.csv_rows import header_names
from layerscope.trace import TraceLog


class Part(StrEnum):
    """What the rows of a file are."""

    KERNELS = "kernels"
    COPIES = "copies"
    CALLS = "calls of an API, or markers"
    AGENTS = "devices"
    COUNTERS = "hardware counters"
    SUMMARY = "sums, without times"
    MEMORY = "allocations"
    OTHER = "something else"


_TIMES: Final = {"start_timestamp", "end_timestamp"}
_SIGNS: Final[tuple[tuple[Part, set[str]], ...]] = (
    (Part.COUNTERS, {"counter_name"}),
    (Part.KERNELS, {"kernel_name", *_TIMES}),
    (Part.COPIES, {"direction", *_TIMES}),
    (Part.MEMORY, {"allocation_size"}),
    (Part.CALLS, {"function", "correlation_id", *_TIMES}),
    (Part.AGENTS, {"agent_type", "node_id"}),
    (Part.SUMMARY, {"calls", "averagens"}),
)
"""Columns that only such a file has, the most telling first."""

_JOINED: Final = (Part.KERNELS, Part.COPIES, Part.CALLS, Part.AGENTS)
_PACKING: Final = re.compile(r"(\.(gz|zst))*$", re.IGNORECASE)
_NAME: Final = re.compile(
    r"(?P<prefix>.*?)_?(?P<part>"
    r"kernel_trace|memory_copy_trace|agent_info|marker_(api_)?trace|rccl_api_trace"
    r"|hip_((runtime|compiler)_)?(api_)?trace|hsa_((core|amd|image|finalize)_)?"
    r"(api_)?trace|counter_collection|memory_allocation_trace|scratch_memory_trace"
    r"|(.*_)?stats)\.csv",
    re.IGNORECASE | re.DOTALL,
)
"""Names as rocprofv3 gives them; the prefix is the process, or what the user chose."""


def part_of(content: Content) -> Part:
    """What the file holds, by its header."""
    names = set(header_names(content.head))
    return next((part for part, signs in _SIGNS if signs <= names), Part.OTHER)


def prefix_of(name: str) -> str | None:
    """What the files of one process have in common, of the name of one of them.

    None where the name is not one that rocprofv3 gives.
    """
    matched = _NAME.fullmatch(_PACKING.sub("", PurePosixPath(name).name))
    return matched["prefix"] if matched else None


def siblings(content: Content, log: TraceLog) -> list[Content]:
    """The other files of the same process: in the same folder, of the same prefix.

    Of files that differ only in their packing one is taken.

    Args:
        content: one of them.
        log: is told of those that cannot be read.
    """
    own = content.member or content.path.name
    prefix = prefix_of(own)
    if prefix is None:
        return []
    taken = {_PACKING.sub("", PurePosixPath(own).name)}
    found = []
    for name in sorted(_names_beside(content)):
        bare = _PACKING.sub("", PurePosixPath(name).name)
        if bare in taken or prefix_of(bare) != prefix:
            continue
        taken.add(bare)
        try:
            found += _opened(content, name)
        except InputError:
            log.add("dropped", "files of the same prefix that cannot be read")
    return [each for each in found if part_of(each) in _JOINED]


def _names_beside(content: Content) -> Iterator[str]:
    if content.member:
        folder = PurePosixPath(content.member).parent
        for other in contents_of(content.path):
            if PurePosixPath(other.member).parent == folder:
                yield other.member
        return
    try:
        yield from (each.name for each in content.path.parent.iterdir())
    except OSError:  # a folder that may be entered and not be listed
        return


def _opened(content: Content, name: str) -> list[Content]:
    if content.member:
        return [each for each in contents_of(content.path) if each.member == name]
    path = content.path.parent / name
    return contents_of(path) if _is_file(path) else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
