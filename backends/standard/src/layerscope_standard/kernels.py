"""What a kernel and a launch of it are, whoever runs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor

Argument: TypeAlias = Tensor | int | float | None
"""A tensor is passed as a pointer to its data, None as a null pointer, an int as
``int``, and a float as ``float``."""

Enqueue: TypeAlias = Callable[[], None]
"""Enqueues one kernel on the current stream."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, with the numbers that it is compiled for."""

    file: str
    """Where it is: ``product`` for code/product.cu."""

    name: str
    threads: int
    """Of a block."""

    defines: tuple[tuple[str, int], ...] = ()
    """Macros that the file needs."""

    package: str = "layerscope_standard"
    """Whose code/ has the file, and any headers that it names."""

    headers: tuple[str, ...] = ()
    """Those of `package` that the file includes beside the ones of this package."""

    stamps: tuple[str, int] | None = None
    """The role for which its blocks note when they worked, and how many there are."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel, with all that it is called with."""

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    """Dynamic shared memory of a block."""

    cooperative: bool = False
    """Whether all blocks must be resident at once; never launched programmatically."""


class Launcher(Protocol):
    """Whatever can run launches; tests have one that needs no GPU."""

    def prepare(self, launch: Launch) -> Enqueue:
        """Compile and load the kernel of `launch`; the result enqueues it.

        The result keeps the tensors of the launch alive.

        Raises:
            BackendError: it cannot be compiled or loaded.
        """

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """When the blocks of a prepared kernel worked in its last launch; clears that.

        Returns:
            int64 [blocks, 4] on the CPU, as `plugin.Stamping` says.
        """


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel of a region, ready to be enqueued."""

    role: str
    enqueue: Enqueue
