"""What a Chrome trace says beside its events: of devices, ranks, clock and tools.

It is looked for key by key, since the text around the events may be cut or damaged,
and each trace has it in another place and order.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from layerscope.trace import TraceDevice

_MOST_DEVICES: Final = 4_096
_LONGEST_VALUE: Final = 1 << 20
_VALUE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_DEPTHS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_LARGEST: Final = 1 << 62

_AMD_WARP: Final = 64
_CDNA: Final = {(9, 4): "gfx942", (9, 5): "gfx950"}
"""By compute capability as HIP gives it; (9, 0) is several architectures."""

_CDNA_2: Final = re.compile(r"\bMI2[15]0")
"""Names of gfx90a, which has that (9, 0)."""


@dataclass(frozen=True, slots=True)
class Header:
    """What was found; what was not is empty, 0 or None."""

    devices: tuple[TraceDevice, ...] = ()
    """As the file numbers them, which on ROCm need not be how kernels do."""

    rank: int | None = None
    ranks: int | None = None
    base_ns: int | None = None
    """Unix time of the events' time 0."""

    unit: str = ""
    """For viewers ("ms", "ns"; "us" in Proton's traces): times are always in µs."""

    written_by: str = ""


def header_of(text: bytes) -> Header:
    """The header in `text`, which is what stands around lists of events."""
    job = _table(_found(text, "distributedInfo"))
    hip = _number(text, "hip_runtime_version")
    cuda = _number(text, "cuda_runtime_version")
    listed = _found(text, "deviceProperties") or _found(text, "computeProperties")
    entries = [_table(each) for each in listed] if isinstance(listed, list) else []
    unit = _found(text, "displayTimeUnit")
    is_amd = hip is not None or any(_is_amd(each) for each in entries)
    return Header(
        devices=tuple(
            _device(entry, is_amd=is_amd) for entry in entries[:_MOST_DEVICES]
        ),
        rank=_whole(job.get("rank")),
        ranks=_whole(job.get("world_size")),
        base_ns=_number(text, "baseTimeNanoseconds"),
        unit=unit if isinstance(unit, str) else "",
        written_by=_tools(text, hip=hip, cuda=cuda),
    )


def devices_of(header: Header, used: Collection[int]) -> tuple[TraceDevice, ...]:
    """The devices of a trace, numbered as its kernels number them.

    On ROCm, kernels may carry numbers that the list of devices lacks: those of the
    machine's agents. If all devices are alike, it does not matter which is meant.

    Args:
        header: of the trace.
        used: devices that kernels ran on; without any, all are given as listed.
    """
    if not used:
        return header.devices
    listed = {each.device: each for each in header.devices}
    kinds = {msgspec.structs.replace(each, device=0) for each in header.devices}
    other = kinds.pop() if len(kinds) == 1 else TraceDevice(device=0)
    return tuple(
        listed.get(number) or msgspec.structs.replace(other, device=number)
        for number in sorted(used)
    )


def _device(entry: dict[str, object], *, is_amd: bool) -> TraceDevice:
    major = _whole(entry.get("computeMajor", entry.get("major")))
    minor = _whole(entry.get("computeMinor", entry.get("minor")))
    named = entry.get("name")
    name = named if isinstance(named, str) else ""
    if major is None or minor is None:
        architecture = ""
    elif is_amd:
        by_name = "gfx90a" if _CDNA_2.search(name) else ""
        architecture = _CDNA.get((major, minor), by_name)
    else:
        architecture = f"sm_{major}{minor}"
    return TraceDevice(
        device=_whole(entry.get("id")) or 0,
        name=name,
        architecture=architecture,
        processors=_whole(entry.get("numSms", entry.get("multiProcessorCount"))) or 0,
        memory_bytes=_whole(entry.get("totalGlobalMem")) or 0,
    )


def _is_amd(entry: dict[str, object]) -> bool:
    return "AMD" in str(entry.get("name")) or entry.get("warpSize") == _AMD_WARP


def _tools(text: bytes, *, hip: int | None, cuda: int | None) -> str:
    """Which tool wrote it, with the versions of its runtime."""
    if b'"schemaVersion"' not in text and b'"deviceProperties"' not in text:
        return ""
    parts = ["PyTorch profiler"]
    if cuda is not None:
        parts.append(f"CUDA {cuda // 1_000}.{cuda % 1_000 // 10}")
    if hip is not None:
        parts.append(f"HIP {hip // 10**7}.{hip % 10**7 // 10**5}.{hip % 10**5}")
    return ", ".join(parts)


def _number(text: bytes, key: str) -> int | None:
    return _whole(_found(text, key))


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < _LARGEST else None


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _found(text: bytes, key: str) -> object:
    """The value of the first `key` that has one; None without."""
    pattern = re.compile(rb'(?<!\\)"%b"\s*+:\s*+' % key.encode())
    found = pattern.search(text)
    if found is None:
        return None
    end = _end_of_value(text, found.end())
    try:
        value: object = msgspec.json.decode(text[found.end() : end])
    except (msgspec.DecodeError, RecursionError):
        return None
    return value


def _end_of_value(text: bytes, start: int) -> int:
    simple = _VALUE.match(text, start)
    if simple is not None:
        return simple.end()
    depth = 0
    for bracket in _BRACKETS.finditer(text, start, start + _LONGEST_VALUE):
        depth += _DEPTHS.get(bracket[0], 0)
        if depth <= 0:
            return bracket.end()
    return start
