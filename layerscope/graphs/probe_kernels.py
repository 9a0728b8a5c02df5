"""Small kernels of our own that run inside measured graphs, compiled by NVRTC.

No compiler is needed on the user's machine: NVRTC comes with CUDA builds of torch.
"""

import ctypes
from functools import cache
from typing import Any, Final

import torch
from cuda.bindings import driver, nvrtc

from layerscope.errors import MeasurementError
from layerscope.layers.problem import Problem

_THREADS: Final = 1024

# One block, so that no other block can still need the count that thread 0 writes.
# It moves about 100 KB; its cost is the same in every replay and cancels in the slope.
_ADVANCE_SOURCE: Final = r"""
__device__ void copy_row(const uint4* pool, uint4* out, long long row, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = pool[row * n + i];
}

extern "C" __global__ void layerscope_advance(
        long long* launches, const long long* hold, long long* step, long long steps,
        const uint4* inputs, uint4* hidden, long long input_vectors,
        const uint4* biases, uint4* bias, long long bias_vectors) {
    const long long launch = *launches + 1;
    const long long next = launch / *hold % steps;
    __syncthreads();
    if (threadIdx.x == 0) { *launches = launch; *step = next; }
    copy_row(inputs, hidden, next, input_vectors);
    copy_row(biases, bias, next, bias_vectors);
}
"""
_VECTOR_BYTES: Final = 16


class AdvanceKernel:
    """The head of a replay in one kernel: next step, its inputs, its routing bias."""

    def __init__(self, problem: Problem) -> None:
        """Compile (once a process) and bind the kernel to `problem`'s buffers.

        Raises:
            MeasurementError: NVRTC or the driver refuses, or a row of the input pool
                is not a multiple of 16 bytes.
        """
        self._function = _compiled("layerscope_advance", _ADVANCE_SOURCE)
        hidden, bias = problem.buffers[0].hidden, problem.router_bias
        pools = (problem.inputs, hidden), (problem.bias_pool, bias)
        vectors = [_vectors(tensor) for _, tensor in pools]
        counters = (problem.launches, problem.hold, problem.step)
        arguments = [*(tensor.data_ptr() for tensor in counters), problem.steps]
        for (pool, tensor), count in zip(pools, vectors, strict=True):
            arguments += [_address(pool), _address(tensor), count]
        self._values = tuple(arguments)
        self._types = (*(ctypes.c_void_p,) * 3, ctypes.c_longlong) + (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_longlong,
        ) * 2

    def __call__(self) -> None:
        """Enqueue the kernel on torch's current stream; captures like any other."""
        stream = torch.cuda.current_stream().cuda_stream
        arguments = (self._values, self._types)
        grid_and_block = (1, 1, 1, _THREADS, 1, 1)
        _check(
            driver.cuLaunchKernel(
                self._function, *grid_and_block, 0, stream, arguments, 0
            )
        )


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _vectors(tensor: torch.Tensor | None) -> int:
    if tensor is None:
        return 0
    if tensor.nbytes % _VECTOR_BYTES:
        msg = (
            f"one step's input is {tensor.nbytes} bytes, not a multiple of "
            f"{_VECTOR_BYTES}; use a hidden size that is a multiple of 8"
        )
        raise MeasurementError(msg)
    return tensor.nbytes // _VECTOR_BYTES


@cache
def _compiled(name: str, source: str) -> Any:  # noqa: ANN401 (untyped bindings)
    program = _check(
        nvrtc.nvrtcCreateProgram(source.encode(), b"layerscope.cu", 0, [], [])
    )
    major, minor = torch.cuda.get_device_capability()
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    _check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    image = b"\0" * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, image))
    _check(nvrtc.nvrtcDestroyProgram(program))
    module = _check(driver.cuModuleLoadData(image))
    return _check(driver.cuModuleGetFunction(module, name.encode()))


def _check(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (untyped bindings)
    status, *values = result
    if status.value:
        msg = f"compiling or launching a kernel of layerscope failed: {status.name}"
        raise MeasurementError(msg)
    return values[0] if values else None
