"""Runs the kernels on a CPU: their own source, compiled by g++ with other primitives.

See emulated/primitives.cuh for what that checks.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from backends.standard.tests.bench import Bench
from layerscope.errors import BackendError
from layerscope_standard.compiling import STAMP_HEADERS, macros, parts
from layerscope_standard.kernels import Enqueue, Kernel, Launch
from layerscope_standard.launching import packed
from layerscope_standard.selection import Selection
from layerscope_standard.workshop import Workshop

EMULATIONS: Final = {
    name: Path(__file__).parent / "emulated" / name
    for name in ("primitives.cuh", "global_time.cuh")
}
"""What takes the place of headers that hold assembly."""

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

_MOST_BLOCKS: Final = 1 << 14
"""Whose stamps an emulated kernel has room for."""

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
        run: Any = getattr(self._library(kernel), f"run_{kernel.name}")
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

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """When the blocks of `kernel` worked in its last launch; clears that."""
        assert kernel.stamps is not None
        size = 4 * kernel.stamps[1]
        kept = (ctypes.c_int64 * size).in_dll(self._library(kernel), "stamps")
        found = torch.tensor(list(kept)).reshape(-1, 4)
        kept[:] = [0] * size
        return found

    def _library(self, kernel: Kernel) -> ctypes.CDLL:
        emulations = {**EMULATIONS, **self.emulations}
        texts = {
            name: emulations[name].read_text(encoding="utf-8")
            if name in emulations
            else text
            for name, text in parts(kernel).items()
        }
        runs = (_RUN.format(name=name) for name in self.kernels[kernel.file])
        main = "".join((f'#include "{kernel.file}.cu"\n', *runs))
        known = macros(kernel)
        if kernel.stamps is None:
            # No other kernel starts before its end, so when it triggers is not seen.
            known.pop("TRIGGER", None)
        else:
            known["STAMPED_BLOCKS"] = _MOST_BLOCKS  # one library for all grids
        options = [f"-D{name}={value}" for name, value in known.items()]
        if kernel.stamps is not None:
            options += ["-include", STAMP_HEADERS[0]]
        everything = f"{options} {texts} {main}"
        key = hashlib.sha256(everything.encode()).hexdigest()[:24]
        library = self.folder / f"{kernel.file}-{key}.so"
        if not library.exists():
            _compile({**texts, "main.cpp": main}, options, library)
        if kernel.stamps is None:
            return _loaded(library)
        role, blocks = kernel.stamps
        assert blocks <= _MOST_BLOCKS
        own = library.with_name(f"{library.stem}-{role}-{os.getpid()}.so")
        if not own.exists():
            shutil.copy(library, own)  # each role has stamps of its own
        return _loaded(own)


def _compile(texts: Mapping[str, str], options: list[str], library: Path) -> None:
    """Make `library` of files by name; whole or not at all, for several may make it."""
    with tempfile.TemporaryDirectory(dir=library.parent) as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        # Unique symbols would be one for all libraries, of whatever size the macros
        # of the first have made shared memory.
        command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", *options]
        command += ["-fno-gnu-unique", f"-I{folder}", f"{folder}/main.cpp"]
        subprocess.run([*command, "-o", f"{folder}/made.so"], check=True)
        (folder / "made.so").replace(library)


@cache
def _loaded(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))


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
