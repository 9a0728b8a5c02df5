"""Python, torch and what else ``layerscope profile`` imports."""

import platform
import sys
from importlib import import_module
from typing import Final

import layerscope
from layerscope.doctor.versions import first_line, installed, version_of
from layerscope.errors import BackendError
from layerscope.report.diagnosis import Finding, State

PROFILE_FIX: Final = "pip install 'layerscope[profile]'"
MINIMUM_TORCH: Final = (2, 9)
_READERS: Final = ("polars", "msgspec", "numpy")


def python() -> Finding:
    """The interpreter, layerscope itself, and what it reads runs with."""
    readers = [f"{name} {installed(name)}" for name in _READERS]
    own = f"layerscope {layerscope.__version__}"
    version = f"{platform.python_version()} ({sys.executable})"
    return Finding("Python", State.OK, ", ".join([version, own, *readers]))


def torch() -> Finding:
    """Whether torch can be imported, and what its build is for."""
    try:
        module = import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a library it loads
        return _no_torch(error)
    build = "CPUs"
    if module.version.hip:
        build = f"ROCm {module.version.hip}"
    elif module.version.cuda:
        build = f"CUDA {module.version.cuda}"
    version = str(module.__version__)
    found = f"{version}, built for {build}"
    if (version_of(version) or MINIMUM_TORCH) >= MINIMUM_TORCH:
        return Finding("torch", State.OK, found)
    oldest = ".".join(map(str, MINIMUM_TORCH))
    return Finding(
        "torch",
        State.LIMITED,
        found,
        f"layerscope is tested with torch {oldest} and newer",
        f"pip install 'torch>={oldest}'",
    )


def _no_torch(error: ImportError | OSError) -> Finding:
    meaning = "recorded runs can be shown; nothing can be measured"
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        found, fix = "not installed", PROFILE_FIX
    else:
        found = f"{installed('torch')} cannot be imported: {first_line(error)}".strip()
        fix = "pip install --force-reinstall torch"
    return Finding("torch", State.MISSING, found, meaning, fix, blocks=True)


def safetensors() -> Finding:
    """The reader of checkpoints."""
    try:
        import_module("safetensors")
    except ImportError as error:
        return Finding(
            "safetensors",
            State.MISSING,
            first_line(error),
            "profile reads checkpoints with it and does not start without",
            PROFILE_FIX,
            blocks=True,
        )
    return Finding("safetensors", State.OK, installed("safetensors"))


def backends() -> Finding:
    """How many backends are installed; importing them is ``layerscope backends``.

    Needs torch.
    """
    from layerscope.registry import discover  # noqa: PLC0415 (imports torch)

    try:
        names = tuple(discover())
    except BackendError as error:
        return Finding(
            "backends",
            State.REFUSED,
            str(error),
            "an arm of that name could be either of them",
            "pip uninstall one of the two",
            blocks=True,
        )
    return Finding("backends", State.OK, f"{len(names)}: {', '.join(names)}")
