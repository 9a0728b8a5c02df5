"""Which kernels a layer or a draft launches, and that they compile without a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from layerscope_standard.compiling import cubin
from layerscope_standard.kernels import Enqueue, Kernel, Launch
from layerscope_standard.selection import Selection
from layerscope_standard.workshop import Workshop

PROCESSORS = 132
"""Of an H200: into so many blocks work is cut."""


@dataclass(frozen=True)
class NotingLauncher:
    """A `kernels.Launcher` that neither compiles nor runs anything."""

    kernels: list[Kernel] = field(default_factory=list)
    """All that were prepared, each once."""

    def prepare(self, launch: Launch) -> Enqueue:
        """Note the kernel of `launch`."""
        if launch.kernel not in self.kernels:
            self.kernels.append(launch.kernel)
        return lambda: None

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """Nothing has run."""
        raise AssertionError(kernel)


def kernels_of(make: Callable[[Workshop], object]) -> list[Kernel]:
    """What is prepared by whoever makes a layer or a draft with a workshop."""
    launcher = NotingLauncher()
    make(Workshop(launcher, torch.device("cpu"), PROCESSORS, Selection()))
    return launcher.kernels


def check_compiles(kernel: Kernel, architecture: str, names: Sequence[str]) -> None:
    """Its file compiles with its macros, and has all the kernels that it should."""
    image = cubin(kernel, architecture)
    assert image.startswith(b"\x7fELF"), kernel
    missing = [name for name in names if name.encode() not in image]
    assert missing == [], kernel
