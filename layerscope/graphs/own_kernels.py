"""Kernels of our own, compiled by NVRTC and launched on torch's current stream.

No compiler is needed on the user's machine: NVRTC comes with CUDA builds of torch.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor

from layerscope.errors import MeasurementError

Argument: TypeAlias = Tensor | int | float | ctypes.c_int | ctypes.c_uint
"""A tensor is passed as a pointer to its data, an int as ``long long``, a float as
``double``; values of ctypes as what they are."""

Size: TypeAlias = int | tuple[int, int, int]
"""Blocks of a grid or threads of a block; a number is the first of three."""

_FREELY_SHARED_BYTES: Final = 48 << 10
"""Dynamic shared memory that a kernel may have without asking for it."""


class OwnKernel:
    """One kernel, loaded into the context of a device, which must be the current."""

    def __init__(self, source: str, name: str, device: torch.device) -> None:
        """Compile `source` (once a device) and take the kernel `name` from it.

        Args:
            source: CUDA C++ without includes; the kernel is ``extern "C"``.
            name: of the kernel.
            device: where it runs.

        Raises:
            MeasurementError: NVRTC or the driver refuses.
        """
        self.name = name
        self.function = _loaded(device, source, name)
        """``CUfunction``; loaded, so that no launch loads anything."""

    def launch(
        self,
        grid: Size,
        block: Size,
        args: Sequence[Argument],
        *,
        shared_bytes: int = 0,
        programmatic: bool = False,
    ) -> None:
        """Enqueue it on torch's current stream; captures like any other kernel.

        Args:
            grid: blocks.
            block: threads of a block.
            args: what the kernel is called with, in order; tensors must stay alive.
            shared_bytes: dynamic shared memory of a block.
            programmatic: start as soon as all blocks of the kernel before it have
                triggered or ended; it must execute ``griddepcontrol.wait`` before it
                touches what that one writes. Needs compute capability 9.0.

        Raises:
            MeasurementError: the driver refuses the launch.
        """
        if shared_bytes > _FREELY_SHARED_BYTES:
            attribute = driver.CUfunction_attribute
            most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(self.function, most, shared_bytes))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = _three(grid)
        config.blockDimX, config.blockDimY, config.blockDimZ = _three(block)
        config.sharedMemBytes = shared_bytes
        config.hStream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        if programmatic:
            config.attrs = [_programmatic()]
            config.numAttrs = 1
        check(driver.cuLaunchKernelEx(config, self.function, packed(args), 0))


def packed(args: Sequence[Argument]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values and C types of `args`, as the bindings take kernel parameters."""
    pairs = [_value_and_type(arg) for arg in args]
    return tuple(value for value, _ in pairs), tuple(kind for _, kind in pairs)


def _value_and_type(arg: Argument) -> tuple[int | float, type[Any]]:
    if isinstance(arg, Tensor):
        return arg.data_ptr(), ctypes.c_void_p
    if isinstance(arg, int):
        return arg, ctypes.c_longlong
    if isinstance(arg, float):
        return arg, ctypes.c_double
    return arg.value, type(arg)


def _three(size: Size) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size


def _programmatic() -> Any:  # noqa: ANN401 (untyped bindings)
    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def cubin(source: str, architecture: str) -> bytes:
    """The machine code of CUDA C++ `source` for `architecture`, such as ``sm_90``.

    Raises:
        MeasurementError: it does not compile; with the compiler's first line.
    """
    program = check(
        nvrtc.nvrtcCreateProgram(source.encode(), b"layerscope.cu", 0, [], [])
    )
    try:
        options = [f"--gpu-architecture={architecture}".encode()]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status.value:
            msg = f"a kernel of layerscope does not compile: {_log(program)}"
            raise MeasurementError(msg)
        image: bytes = b"\0" * check(nvrtc.nvrtcGetCUBINSize(program))
        check(nvrtc.nvrtcGetCUBIN(program, image))
    finally:
        check(nvrtc.nvrtcDestroyProgram(program))
    return image


def _log(program: Any) -> str:  # noqa: ANN401 (untyped bindings)
    log: bytes = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
    check(nvrtc.nvrtcGetProgramLog(program, log))
    return log.decode(errors="replace").strip("\0 \n").partition("\n")[0]


@cache
def _module(device: torch.device, source: str) -> Any:  # noqa: ANN401 (untyped bindings)
    torch.empty(1, device=device)  # makes the context, where nothing has yet
    major, minor = torch.cuda.get_device_capability(device)
    return check(driver.cuModuleLoadData(cubin(source, f"sm_{major}{minor}")))


@cache
def _loaded(device: torch.device, source: str, name: str) -> Any:  # noqa: ANN401
    return check(driver.cuModuleGetFunction(_module(device, source), name.encode()))


def check(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (untyped bindings)
    """The value of a call of the driver or of NVRTC, or None where it has none.

    Raises:
        MeasurementError: the status is not success; names it.
    """
    status, *values = result
    if status.value:
        msg = f"compiling or launching a kernel of layerscope failed: {status.name}"
        raise MeasurementError(msg)
    return values[0] if values else None
