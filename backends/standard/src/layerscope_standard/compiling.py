"""From the CUDA C++ of this package to machine code, by NVRTC and a cache on disk.

No compiler is needed on the user's machine: NVRTC comes with CUDA builds of torch.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from layerscope.errors import BackendError
from layerscope_standard.kernels import Kernel

ARCHITECTURES: Final = {
    "sm_90": "sm_90a",
    "sm_100": "sm_100a",
    "sm_103": "sm_103a",
    "sm_120": "sm_120a",
}
"""What the kernels are compiled for, by the architecture that layerscope tells."""

HEADERS: Final = (
    *("primitives.cuh", "turns.cuh", "product.cuh", "table.cuh"),
    *("choosing.cuh", "attention.cuh", "rope.cuh", "keys.cuh"),
)
STAMP_HEADERS: Final = ("stamps.cuh", "global_time.cuh")
"""Included before all else where blocks note when they work."""

FILES: Final = (
    *("product", "norm", "rope", "attention", "combine", "routing", "experts"),
    "draft",
)

_OPTIONS: Final = ("--std=c++17",)


def source(name: str, package: str = "layerscope_standard") -> str:
    """The text of a file of code/ of `package`, such as ``product.cu``."""
    folder = files(package) / "code"
    return (folder / name).read_text(encoding="utf-8")


def cubin(kernel: Kernel, architecture: str) -> bytes:
    """The machine code of the file of `kernel`, with its macros.

    Kept in the user's cache under a name made of everything that goes into it.

    Args:
        kernel: names the file and the macros.
        architecture: a key of `ARCHITECTURES`.

    Raises:
        BackendError: it does not compile; with the compiler's first line.
    """
    options = _options(kernel, architecture)
    key = hashlib.sha256()
    for part in (*parts(kernel).values(), *options, _version()):
        key.update(f"{len(part)} {part}".encode())
    kept = cache_folder() / f"{kernel.file}-{key.hexdigest()[:32]}.cubin"
    with suppress(OSError):
        return kept.read_bytes()
    image = _compiled(kernel, options)
    with suppress(OSError):  # a cache that cannot be written is none
        _keep(kept, image)
    return image


def cache_folder() -> Path:
    """Where machine code is kept: below ``XDG_CACHE_HOME``, or ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "layerscope" / "cubins"


def _keep(path: Path, image: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all, also where two processes compile the same.
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(image)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)  # where it was not moved


def parts(kernel: Kernel) -> dict[str, str]:
    """The file of `kernel`, the first, and all that it may include; by name."""
    own = (f"{kernel.file}.cu", *kernel.headers)
    shared = HEADERS if kernel.stamps is None else (*HEADERS, *STAMP_HEADERS)
    return {
        **{name: source(name, kernel.package) for name in own},
        **{name: source(name) for name in shared},
    }


def macros(kernel: Kernel) -> dict[str, int]:
    """All that `kernel` is compiled with."""
    stamped = {} if kernel.stamps is None else {"STAMPED_BLOCKS": kernel.stamps[1]}
    return {**dict(kernel.defines), **stamped}


def _options(kernel: Kernel, architecture: str) -> tuple[str, ...]:
    defines = (f"--define-macro={each}={n}" for each, n in macros(kernel).items())
    target = f"--gpu-architecture={ARCHITECTURES[architecture]}"
    first = () if kernel.stamps is None else (f"--pre-include={STAMP_HEADERS[0]}",)
    return (*_OPTIONS, target, *defines, *first)


@cache
def _version() -> str:
    from cuda.bindings import nvrtc

    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # the library is looked for at the first call
        msg = (
            "standard: NVRTC is not there; it comes with CUDA builds of torch, or: "
            "pip install nvidia-cuda-nvrtc"
        )
        raise BackendError(msg) from error
    return f"{major}.{minor}"


def _compiled(kernel: Kernel, options: tuple[str, ...]) -> bytes:
    from cuda.bindings import nvrtc

    texts = parts(kernel)
    name, *headers = texts
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            texts[name].encode(),
            name.encode(),
            len(headers),
            [texts[header].encode() for header in headers],
            [header.encode() for header in headers],
        )
    )
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if status.value:
            msg = f"standard: {name} does not compile: {_log(program)}; report it"
            raise BackendError(msg)
        image: bytes = b"\0" * _checked(nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc.nvrtcGetCUBIN(program, image))
    finally:
        _checked(nvrtc.nvrtcDestroyProgram(program))
    return image


def _log(program: Any) -> str:  # noqa: ANN401 (untyped bindings)
    from cuda.bindings import nvrtc

    log: bytes = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    lines = log.decode(errors="replace").strip("\0 \n").splitlines()
    return next((line for line in lines if "error" in line), "no message")


def _checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (untyped bindings)
    status, *values = result
    if status.value:
        msg = f"standard: NVRTC failed: {status.name}; report it"
        raise BackendError(msg)
    return values[0] if values else None
