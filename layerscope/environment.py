"""The machine a run was made on, and which of its fields must agree between runs.

No torch here: readers and reports import this module. The runner hands in what only
torch knows (`DeviceFacts`).
"""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

PACKAGES: Final = (
    "layerscope",
    "torch",
    "triton",
    "polars",
    "cupti-python",
    "nvidia-cuda-cupti",
    "cuda-bindings",
    "nvidia-ml-py",
)


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime says of the device that was measured."""

    type: str  # "cpu", "cuda" or "hip"
    name: str
    index: int = 0
    uuid: str = ""
    architecture: str = ""  # "sm_90", "gfx950"; empty for a CPU
    processors: int = 0  # SMs, CUs, or CPU cores usable here
    memory_bytes: int = 0
    l2_bytes: int = 0
    driver: str = ""
    runtime: str = ""  # CUDA or HIP version of torch


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Device, operating system and package versions of a run."""

    device: DeviceFacts
    platform: str
    python: str
    packages: dict[str, str]


CHECKED_FIELDS: Final = (
    "device.type",
    "device.name",
    "device.architecture",
    "device.processors",
    "device.driver",
    "device.runtime",
    "packages.torch",
    "packages.triton",
)
"""Fields in which two runs must agree before their times may be compared."""


def collect(device: DeviceFacts) -> Environment:
    """The environment of this process, with `device` as the runtime described it."""
    return Environment(
        device=device,
        platform=platform.platform(),
        python=platform.python_version(),
        packages=_versions(),
    )


def cpu_name() -> str:
    """Model name of this machine's CPU, or its architecture where none is told."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def available_memory_bytes() -> int:
    """Host memory that can be taken without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def differences(
    a: Environment, b: Environment, *, only_told: bool = False
) -> list[str]:
    """Each checked field in which `a` and `b` differ, as ``field: a against b``.

    Args:
        a: what is compared with.
        b: what is compared.
        only_told: whether a field counts only where both tell it, as of a trace, which
            does not tell all.
    """
    left, right = _flatten(a), _flatten(b)
    if only_told:
        told = {name for name in left if left[name] and right.get(name)}
        left, right = ({n: each[n] for n in told} for each in (left, right))
    return [
        f"{field}: {left.get(field, 'none')} against {right.get(field, 'none')}"
        for field in CHECKED_FIELDS
        if left.get(field) != right.get(field)
    ]


def _flatten(environment: Environment) -> dict[str, object]:
    builtins = msgspec.to_builtins(environment)
    flat = {f"device.{key}": value for key, value in builtins["device"].items()}
    flat |= {f"packages.{key}": value for key, value in builtins["packages"].items()}
    return flat


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
