"""Preparing Triton kernels: compiled when a layer is built, launched with stock PDL.

Every kernel of the ``triton_`` modules waits at entry and triggers at the end, as the
own ones do, where its constant PDL says so.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from layerscope.errors import BackendError
from layerscope_standard.kernels import Operation
from layerscope_standard.launching import CudaLauncher
from layerscope_standard.workshop import Workshop

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

TritonArgument: TypeAlias = Tensor | int | float | bool


def is_programmatic(workshop: Workshop) -> bool:
    """Whether kernels are launched with the programmatic attribute."""
    launcher = workshop.launcher
    return isinstance(launcher, CudaLauncher) and launcher.programmatic


def triton_operation(
    workshop: Workshop,
    role: str,
    kernel: "JITFunction[Any]",
    grid: tuple[int, int, int],
    args: Mapping[str, TritonArgument],
) -> Operation:
    """One launch, compiled and loaded.

    Args:
        workshop: what the layer is made with.
        role: of the kernel.
        kernel: has a constant PDL.
        grid: how many programs.
        args: of the kernel by name, and of Triton: ``num_warps``, ``num_stages``.

    Raises:
        BackendError: it cannot be compiled or loaded.
    """
    from triton.errors import TritonError

    pdl = is_programmatic(workshop)
    options = {"launch_pdl": True} if pdl else {}
    launch = kernel[grid]
    try:
        compiled = kernel.warmup(**args, PDL=pdl, grid=grid, **options)
        if compiled is not None:  # the interpreter has nothing to load
            _ = compiled.run
    except (TritonError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        msg = (
            f"standard: Triton cannot make {role}: {first}; "
            "take its lines out of selection.toml"
        )
        raise BackendError(msg) from error

    def enqueue() -> None:
        launch(**args, PDL=pdl, **options)

    return Operation(role, enqueue)
