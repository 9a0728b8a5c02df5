"""Versions as they are compared: the first two numbers."""

import re
from importlib import metadata
from typing import TypeAlias

Version: TypeAlias = tuple[int, int]


def version_of(text: str) -> Version | None:
    """(13, 0) for ``13.0.85``; None for text that does not begin so."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def cuda_version(number: int) -> Version | None:
    """(13, 0) for 13000, as CUDA and NVML number their versions; None for 0."""
    return (number // 1000, number % 1000 // 10) if number else None


def written(version: Version | None) -> str:
    """``13.0``; ``unknown`` for None."""
    return "unknown" if version is None else f"{version[0]}.{version[1]}"


def installed(package: str) -> str:
    """The version of an installed distribution, or an empty string."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def first_line(error: BaseException) -> str:
    """What an exception of a library says, in one line; its class if it says nothing.

    Errors of torch go on with advice and a native traceback.
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
