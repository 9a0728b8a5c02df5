"""Launching the kernels on torch's current stream, with or without stock PDL."""

import ctypes
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope_standard.compiling import cubin
from layerscope_standard.kernels import Argument, Enqueue, Kernel, Launch

_FREELY_SHARED_BYTES: Final = 48 << 10
"""Dynamic shared memory that a kernel may have without asking for it."""


_allowed: Final[dict[tuple[torch.device, Kernel], int]] = {}
"""Dynamic shared memory that each loaded kernel may have, where it asked for more."""


class CudaLauncher:
    """Launches on one device; see `kernels.Launcher`."""

    def __init__(self, device: torch.device, *, programmatic: bool) -> None:
        """Launch on `device`, with the programmatic attribute if `programmatic`.

        Every kernel of this package waits for its predecessor at entry, so it may
        start as soon as all blocks of that one have triggered or ended.
        """
        self._device = device
        self.programmatic = programmatic

    def prepare(self, launch: Launch) -> Enqueue:
        """Compile and load the kernel of `launch`; the result enqueues it.

        Raises:
            BackendError: it cannot be compiled or loaded.
        """
        from cuda.bindings import driver

        function = _function(self._device, launch.kernel)
        # Only ever raised: launches of other sizes share the function.
        place = self._device, launch.kernel
        if launch.shared_bytes > _allowed.get(place, _FREELY_SHARED_BYTES):
            names = driver.CUfunction_attribute
            most = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _checked(driver.cuFuncSetAttribute(function, most, launch.shared_bytes))
            _allowed[place] = launch.shared_bytes
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX = launch.kernel.threads
        config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = launch.shared_bytes
        attributes = [_programmatic()] if self.programmatic else []
        if launch.cooperative:
            attributes = [_cooperative()]
        config.attrs, config.numAttrs = attributes, len(attributes)
        args = packed(launch.args)

        def enqueue() -> None:
            _ = launch  # whose tensors must stay alive
            config.hStream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
            _checked(driver.cuLaunchKernelEx(config, function, args, 0))

        return enqueue

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """When the blocks of `kernel` worked in its last launch; see `Launcher`."""
        from cuda.bindings import driver

        module = _module(self._device, kernel)
        place, size = _checked(driver.cuModuleGetGlobal(module, b"stamps"))
        found = torch.empty(size // 8, dtype=torch.int64)
        _checked(driver.cuMemcpyDtoH(found.data_ptr(), place, size))
        _checked(driver.cuMemsetD8(place, 0, size))
        torch.cuda.synchronize(self._device)  # before any stream writes there again
        return found.reshape(-1, 4)


def packed(args: tuple[Argument, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values and C types of `args`, as the bindings take kernel parameters."""
    pairs = [_value_and_type(arg) for arg in args]
    return tuple(value for value, _ in pairs), tuple(kind for _, kind in pairs)


def _value_and_type(arg: Argument) -> tuple[int | float, type[Any]]:
    if arg is None:
        return 0, ctypes.c_void_p
    if isinstance(arg, Tensor):
        return arg.data_ptr(), ctypes.c_void_p
    return arg, ctypes.c_float if isinstance(arg, float) else ctypes.c_int


def _programmatic() -> Any:  # noqa: ANN401 (untyped bindings)
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    names = driver.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def _cooperative() -> Any:  # noqa: ANN401 (untyped bindings)
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    return attribute


@cache
def _function(device: torch.device, kernel: Kernel) -> Any:  # noqa: ANN401
    from cuda.bindings import driver

    module = _module(device, kernel)
    return _checked(driver.cuModuleGetFunction(module, kernel.name.encode()))


@cache
def _module(device: torch.device, kernel: Kernel) -> Any:  # noqa: ANN401
    from cuda.bindings import driver

    torch.empty(1, device=device)  # makes the context, where nothing has yet
    major, minor = torch.cuda.get_device_capability(device)
    image = cubin(kernel, f"sm_{major}{minor}")
    return _checked(driver.cuModuleLoadData(image))


def _checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (untyped bindings)
    status, *values = result
    if status.value:
        msg = f"standard: loading or launching a kernel failed: {status.name}"
        raise BackendError(msg)
    return values[0] if len(values) == 1 else tuple(values)
