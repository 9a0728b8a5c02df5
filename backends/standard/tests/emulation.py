"""Runs the kernels on a CPU: their own source, compiled by g++ with other primitives.

See emulated/primitives.cuh for what that checks.
"""

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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

    launched: list[Launch] = field(default_factory=list)
    """All that was enqueued, in order."""

    def prepare(self, launch: Launch) -> Enqueue:
        """Compile the kernel of `launch`; the result runs it."""
        run = self._compiled(launch.kernel)
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
        texts = [PRIMITIVES.read_text(encoding="utf-8")]
        texts += [source(name) for name in HEADERS[1:]]
        own = (*kernel.headers, f"{kernel.file}.cu")
        texts += [source(name, kernel.package) for name in own]
        texts += [_RUN.format(name=name) for name in self.kernels[kernel.file]]
        text = "\n".join(texts)
        lines = (line for line in text.splitlines() if not line.startswith(_SKIPPED))
        key = hashlib.sha256(f"{kernel.defines} {text}".encode()).hexdigest()[:24]
        library = self.folder / f"{kernel.file}-{key}.so"
        if not library.exists():
            path = library.with_suffix(".cpp")
            path.write_text("\n".join(lines), encoding="utf-8")
            defines = [f"-D{name}={value}" for name, value in kernel.defines]
            command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", *defines]
            subprocess.run([*command, "-o", library, path], check=True)
        run: Any = getattr(ctypes.CDLL(str(library)), f"run_{kernel.name}")
        return run  # type: ignore[no-any-return]


_SKIPPED: Final = ("#pragma once", '#include "')


def workshop_on(
    folder: Path, kernels: Mapping[str, tuple[str, ...]] = KERNELS
) -> Workshop:
    """What layers and drafts on the emulated device are made with."""
    return Workshop(
        launcher=EmulatedLauncher(folder, kernels),
        device=torch.device("cpu"),
        processors=PROCESSORS,
        selection=Selection(),
    )


def emulated_bench(folder: Path) -> Bench:
    """The CPU as a device; compiled kernels are kept in `folder`."""
    return Bench(torch.device("cpu"), lambda: workshop_on(folder))
