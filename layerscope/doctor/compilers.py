"""Compilers that backends and torch call while they build, each really tried."""

import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Any, Final

from layerscope.doctor.versions import first_line, installed
from layerscope.report.diagnosis import Finding, State

GPU_TOPICS: Final = ("NVRTC", "C compiler", "Triton", "nvcc")

_TIMEOUT_S: Final = 30
_KERNEL: Final = b'extern "C" __global__ void nothing() {}\n'


def cxx(environ: Mapping[str, str] = os.environ) -> Finding:
    """The C++ compiler that torch.compile takes for CPU kernels: CXX, else g++.

    It must find Python's headers and OpenMP, which the generated code includes.
    """
    compiler = environ.get("CXX", "g++")
    source = "#include <Python.h>\n#include <omp.h>\n"
    reason = _fault([compiler, "-x", "c++", "-fopenmp"], source)
    if not reason:
        return Finding("C++ compiler", State.OK, _version(compiler))
    clang = which("clang++") if reason == _absent(compiler) else None
    return Finding(
        "C++ compiler",
        State.MISSING,
        reason,
        "torch.compile has no CPU kernels; backends that use it cannot be measured on "
        "a CPU",
        "export CXX=clang++" if clang else "apt install g++ python3-dev",
    )


def cc(environ: Mapping[str, str] = os.environ) -> Finding:
    """The C compiler with which Triton builds its launchers: CC, gcc, or clang."""
    compiler = environ.get("CC") or which("gcc") or which("clang") or "gcc"
    reason = _fault([compiler, "-x", "c"], "#include <Python.h>\n")
    if not reason:
        return Finding("C compiler", State.OK, _version(compiler))
    return Finding(
        "C compiler",
        State.MISSING,
        reason,
        "Triton cannot launch kernels, nor can torch.compile on a GPU",
        "apt install gcc python3-dev",
    )


def triton() -> Finding:
    """The compiler of Triton kernels, which builds of torch for GPUs bring."""
    version = installed("triton") or installed("pytorch-triton-rocm")
    if version:
        return Finding("Triton", State.OK, version)
    return Finding(
        "Triton",
        State.MISSING,
        "not installed",
        "neither backends in Triton nor torch.compile run on the GPU",
        "pip install triton",
    )


def nvcc(environ: Mapping[str, str] = os.environ) -> Finding:
    """The compiler of CUDA C++; only backends that build with it need it."""
    home = environ.get("CUDA_HOME")
    found = which("nvcc") or (which("nvcc", path=f"{home}/bin") if home else None)
    if found is None:
        needs = "not installed, and not needed by layerscope"
        return Finding("nvcc", State.NOT_APPLICABLE, needs)
    lines = _output([found, "--version"]).splitlines()
    release = next((line for line in lines if "release" in line), "version unknown")
    return Finding("nvcc", State.OK, f"{release} ({found})")


def nvrtc(library: Any, architecture: str) -> Finding:  # noqa: ANN401 (untyped bindings)
    """The run-time compiler of CUDA C++, by a kernel of one line.

    Args:
        library: ``cuda.bindings.nvrtc``.
        architecture: of the GPU, such as ``sm_90``.
    """
    try:
        version, reason = _compiled(library, architecture)
    except RuntimeError as error:  # the shared library is not found
        version, reason = "", first_line(error)
    if not reason:
        return Finding("NVRTC", State.OK, f"{version}, compiles for {architecture}")
    return Finding(
        "NVRTC",
        State.MISSING,
        f"{version} {reason}".strip(),
        "the kernel that advances a replay cannot be built, so profile cannot start",
        "pip install nvidia-cuda-nvrtc",
        blocks=True,
    )


def _compiled(library: Any, architecture: str) -> tuple[str, str]:  # noqa: ANN401
    """The version, and why the kernel was not compiled; empty if it was."""
    _, major, minor = library.nvrtcVersion()
    status, program = library.nvrtcCreateProgram(_KERNEL, b"nothing.cu", 0, [], [])
    if not status.value:
        options = [f"--gpu-architecture={architecture}".encode()]
        (status,) = library.nvrtcCompileProgram(program, len(options), options)
        library.nvrtcDestroyProgram(program)
    reason = f"fails with {status.name} for {architecture}" if status.value else ""
    return f"{major}.{minor}", reason


def _fault(command: list[str], source: str) -> str:
    """Why the compiler refuses `source`; empty where it does not."""
    compiler, *options = command
    include = f"-I{sysconfig.get_path('include')}"
    command = [compiler, *options, "-fsyntax-only", include, "-"]
    try:
        done = subprocess.run(  # noqa: S603 (what torch and Triton run themselves)
            command,
            env=os.environ | {"LC_ALL": "C"},
            input=source,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return _absent(compiler)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler}: {first_line(error)}"
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return f"{compiler}: {lines[0].strip() if lines else f'exit {done.returncode}'}"


def _absent(compiler: str) -> str:
    return f"{compiler} is not installed"


def _version(compiler: str) -> str:
    lines = _output([compiler, "--version"]).splitlines()
    return lines[0] if lines else Path(compiler).name


def _output(command: list[str]) -> str:
    """What a compiler prints; empty where it does not run."""
    try:
        return subprocess.run(  # noqa: S603 (a compiler that was found on the path)
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
