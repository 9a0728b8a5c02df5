"""The logs of compute-sanitizer that backends keep, one for every file of kernels.

A log says of which source it is, so that no kernel can change without a new one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

CLEAN: Final = "0 errors"
NOT_RUN: Final = "not run: "
"""Begins what is told in place of a count, with the reason after it."""

_INCLUDE: Final = re.compile(r'^#include "(?P<name>[^"]+)"$', flags=re.MULTILINE)
_SUMMARY: Final = re.compile(r"SUMMARY: (?P<count>\d+) (?:errors?|hazards?)")
_RECORD: Final = re.compile(r"^========= \S")
_PLACE: Final = re.compile(r"(?<=\bat )(?P<kernel>\w+)(?=[+(])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What was found for one file of kernels."""

    source: str
    """`digest` of the file then."""

    kernels: tuple[str, ...]
    """That were launched, and checked."""

    memcheck: str
    racecheck: str
    device: str
    sanitizer: str
    """The program and its version."""

    command: str

    def __str__(self) -> str:
        """The text of the log."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["kernels"] = ", ".join(self.kernels)
        return "".join(f"{name}: {value}\n" for name, value in fields.items())

    @classmethod
    def parse(cls, text: str) -> Self:
        """The log with this text.

        Raises:
            TypeError: it lacks a line, or has another.
        """
        parted = (line.partition(": ") for line in text.splitlines())
        fields = {name: value for name, _, value in parted}
        kernels = tuple(fields.pop("kernels", "").split(", "))
        return cls(kernels=kernels, **fields)


def digest(file: Path, shared: Path | None = None) -> str:
    """A hash of a file of code/ and of all that it includes.

    Args:
        file: the file.
        shared: code/ of the package whose headers it may include as well.
    """
    key = sha256()
    for path in sorted(_with_included(file, shared), key=lambda path: path.name):
        text = path.read_bytes()
        key.update(f"{path.name} {len(text)} ".encode() + text)
    return key.hexdigest()[:32]


def _with_included(file: Path, shared: Path | None) -> set[Path]:
    found, left = set[Path](), [file]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            own = file.parent / name
            left.append(own if own.exists() or shared is None else shared / name)
    return found


def errors(output: str, kernels: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """How many records of a sanitizer's output are of the kernels of each file.

    Args:
        output: of memcheck or racecheck, whole.
        kernels: names by file.

    Raises:
        ValueError: there is no summary, or it counts more than belongs to kernels.
    """
    summary = _SUMMARY.search(output)
    if summary is None:
        msg = "the sanitizer did not come to its end"
        raise ValueError(msg)
    counts = dict.fromkeys(kernels, 0)
    owners = {name: file for file, names in kernels.items() for name in names}
    for record in _records(output):
        places = (owners.get(name) for name in _PLACE.findall(record))
        owner = next(filter(None, places), None)
        if owner is not None:
            counts[owner] += 1
    if sum(counts.values()) < int(summary["count"]):
        msg = f"{summary[0]}, not all of them in these kernels"
        raise ValueError(msg)
    return counts


def _records(output: str) -> Iterator[str]:
    """Every record, its lines in one."""
    record: list[str] = []
    for line in output.splitlines():
        if _RECORD.match(line):
            yield "\n".join(record)
            record = []
        record.append(line)
    yield "\n".join(record)


def wrong_logs(
    folder: Path,
    code: Path,
    kernels: Mapping[str, tuple[str, ...]],
    shared: Path | None = None,
) -> list[str]:
    """What is wrong with the logs of a package; empty where all are there and clean.

    Args:
        folder: of the logs.
        code: of the kernels.
        kernels: names by file, without its ending; all that there are.
        shared: as in `digest`.
    """
    kept = {path.stem: path for path in folder.glob("*.log")}
    files = {path.stem for path in code.glob("*.cu")}
    wrong = [f"{name}.log is of no file" for name in sorted(kept.keys() - files)]
    for name in sorted(files):
        if name not in kept:
            wrong.append(f"{name}.cu has no log")
            continue
        log = Log.parse(kept[name].read_text(encoding="utf-8"))
        if log.source != digest(code / f"{name}.cu", shared):
            wrong.append(f"{name}.cu has changed since its log")
        names = kernels.get(name, ("its kernels: they are not registered",))
        missing = sorted({*names} - {*log.kernels})
        if missing:
            wrong.append(f"{name}.log lacks {', '.join(missing)}")
        wrong += [
            f"{name}.log: {tool}: {told}"
            for tool, told in (("memcheck", log.memcheck), ("racecheck", log.racecheck))
            if told != CLEAN and not (tool == "racecheck" and told.startswith(NOT_RUN))
        ]
    return wrong
