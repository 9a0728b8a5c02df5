"""Runs the kernels on a CPU: their own source, compiled by g++ with other primitives.

See emulated/primitives.cuh for what that checks.
"""

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from backends.standard.tests.bench import Bench
from layerscope.errors import BackendError
from layerscope_standard.compiling import HEADERS, source
from layerscope_standard.kernels import Enqueue, Kernel, Launch
from layerscope_standard.launching import packed
from layerscope_standard.selection import Selection
from layerscope_standard.workshop import Workshop

PRIMITIVES: Final = Path(__file__).parent / "emulated" / "primitives.cuh"
PROCESSORS: Final = 4
"""Of the device that is emulated."""

KERNELS: Final = {
    "product": ("product_bf16", "product_fp8"),
    "norm": ("norm_rows", "add_norm_rows"),
    "rope": ("rope_kv_write",),
    "attention": ("attention",),
    "combine": ("combine",),
    "routing": ("top_k", "align"),
    "experts": ("gate_up_bf16", "gate_up_fp8", "down_bf16", "down_fp8"),
    "draft": ("draft_token_bf16", "draft_token_fp8"),
}
"""Of every file of code/."""

_RUN: Final = """
extern "C" int run_{name}(
        const unsigned* grid, unsigned threads, const std::uint64_t* slots) {{
    return emulated::run({name}, grid, threads, slots);
}}
"""


@dataclass(frozen=True)
class EmulatedLauncher:
    """A `kernels.Launcher` that runs kernels at once, on tensors of the CPU."""

    folder: Path
    """Where libraries are kept."""

    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: KERNELS)
    """Of every file, also of packages that build on this one."""

    emulations: Mapping[str, Path] = field(default_factory=dict)
    """What takes the place of headers of such packages that hold assembly."""

    launched: list[Launch] = field(default_factory=list)
    """All that was enqueued, in order."""

    def prepare(self, launch: Launch) -> Enqueue:
        """Compile the kernel of `launch`; the result runs it."""
        kernel = launch.kernel
        if launch.cooperative:  # all its blocks run together
            together = ("TOGETHER", prod(launch.grid))
            kernel = replace(kernel, defines=(*kernel.defines, together))
        run = self._compiled(kernel)
        grid = (ctypes.c_uint * 3)(*launch.grid)
        values, kinds = packed(launch.args)
        slots = (ctypes.c_uint64 * len(values))()
        for number, (value, kind) in enumerate(zip(values, kinds, strict=True)):
            at = ctypes.addressof(slots) + 8 * number
            kind.from_address(at).value = value

        def enqueue() -> None:
            self.launched.append(launch)
            if run(grid, launch.kernel.threads, slots):
                msg = f"threads of {launch.kernel.name} wait for others for ever"
                raise BackendError(msg)

        return enqueue

    def _compiled(self, kernel: Kernel) -> Callable[..., int]:
        paths = {HEADERS[0]: PRIMITIVES} | {
            name: self.emulations[name]
            for name in kernel.headers
            if name in self.emulations
        }
        included = {
            name: _bare(path.read_text(encoding="utf-8"))
            for name, path in paths.items()
        }
        body = _whole(f"{kernel.file}.cu", kernel, included)
        runs = (_RUN.format(name=name) for name in self.kernels[kernel.file])
        text = "\n".join((*included.values(), body, *runs))
        # When a kernel triggers changes nothing here: no other starts before its end.
        known = [each for each in kernel.defines if each[0] != "TRIGGER"]
        key = hashlib.sha256(f"{known} {text}".encode()).hexdigest()[:24]
        library = self.folder / f"{kernel.file}-{key}.so"
        if not library.exists():
            path = library.with_suffix(".cpp")
            path.write_text(text, encoding="utf-8")
            defines = [f"-D{name}={value}" for name, value in known]
            # Unique symbols would be one for all libraries, of whatever size the
            # macros of the first have made shared memory.
            command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", *defines]
            command.append("-fno-gnu-unique")
            subprocess.run([*command, "-o", library, path], check=True)
        run: Any = getattr(ctypes.CDLL(str(library)), f"run_{kernel.name}")
        return run  # type: ignore[no-any-return]


_INCLUDE: Final = re.compile(r'#include "(.+)"')
_SKIPPED: Final = re.compile(r'#pragma once|#include "')


def _whole(name: str, kernel: Kernel, included: dict[str, str]) -> str:
    """The text of a file without includes, which go to `included` first and once."""
    is_standard = name in HEADERS
    text = source(name) if is_standard else source(name, kernel.package)
    for header in _INCLUDE.findall(text):
        if header not in included:
            included[header] = _whole(header, kernel, included)
    return _bare(text)


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not _SKIPPED.match(line))


def workshop_on(
    folder: Path,
    kernels: Mapping[str, tuple[str, ...]] = KERNELS,
    emulations: Mapping[str, Path] = MappingProxyType({}),
) -> Workshop:
    """What layers and drafts on the emulated device are made with."""
    return Workshop(
        launcher=EmulatedLauncher(folder, kernels, emulations),
        device=torch.device("cpu"),
        processors=PROCESSORS,
        selection=Selection(),
    )


def emulated_bench(folder: Path) -> Bench:
    """The CPU as a device; compiled kernels are kept in `folder`."""
    return Bench(torch.device("cpu"), lambda: workshop_on(folder))
