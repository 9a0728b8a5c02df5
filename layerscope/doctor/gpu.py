"""The GPU itself: whether torch reaches it, who else uses it, and its neighbours."""

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from layerscope.doctor.gpu_state import GpuState, Unreadable
from layerscope.doctor.versions import first_line, written
from layerscope.environment import DeviceFacts
from layerscope.report.diagnosis import Finding, State
from layerscope.units import format_bytes

SHARING_TOPICS: Final = ("MPS", "MIG", "other processes")
OTHER_TOPICS: Final = ("torch kernels", "variables", "peer access", "ROCm")

_REFUSALS: Final = {
    "MPS": (
        "MPS",
        "echo quit | nvidia-cuda-mps-control; unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    ),
    "MIG": (
        "MIG",
        "sudo nvidia-smi -mig 0, or take a GPU that is not split",
    ),
    "other processes": (
        "other processes",
        "wait for them, or choose another GPU by CUDA_VISIBLE_DEVICES",
    ),
}
"""Words of a refusal: its topic, and the way out."""

_HIDING: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_VARIABLES: Final = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for its kernel",
    "CUDA_INJECTION64_PATH": "another profiler is loaded, and CUPTI serves only one",
    "NVIDIA_TF32_OVERRIDE": "arithmetic is not the one that a backend asks for",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch cannot capture graphs",
}
"""Variables that change what is measured, with what they do."""


def torch_sees_gpu() -> tuple[bool, str]:
    """Whether torch can use a GPU, and what it warns of where it cannot."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.cuda.is_available()
    return found, "; ".join(str(one.message).splitlines()[0] for one in caught)


def absent(
    state: GpuState | Unreadable,
    warning: str,
    *,
    wanted: bool,
    environ: Mapping[str, str] = os.environ,
) -> Finding:
    """Why there is no GPU to measure on, and whether there could be one.

    Args:
        state: what NVML tells.
        warning: what torch says, empty where it says nothing.
        wanted: whether the GPU was asked for by name, so that a CPU will not do.
        environ: the variables of the process.
    """
    is_there = isinstance(state, GpuState) and state.gpus > 0
    is_cpu_build = torch.version.cuda is None and torch.version.hip is None
    hiding = [name for name in _HIDING if name in environ]
    if is_cpu_build:
        found, fix = f"torch {torch.__version__} is built for CPUs only", ""
        if is_there or wanted:
            fix = "install torch for the GPU (see pytorch.org/get-started)"
        if isinstance(state, GpuState) and is_there:
            found += f"; a driver for CUDA {written(state.cuda)} is here"
    elif hiding:
        values = ", ".join(f"{name} is {environ[name]!r}" for name in hiding)
        found, fix = f"torch finds none; {values}", f"unset {' '.join(hiding)}"
    else:
        found = f"torch finds none{f': {warning}' if warning else ''}"
        fix = "nvidia-smi or rocm-smi must list it; in a container, pass it in"
    if wanted:
        meaning = "--device cuda has nothing to measure"
        return Finding("GPU", State.MISSING, found, meaning, fix, blocks=True)
    if not is_there and is_cpu_build:
        return Finding("GPU", State.NOT_APPLICABLE, found)
    return Finding("GPU", State.LIMITED, found, "only the CPU is measured", fix)


def present(device: DeviceFacts, count: int) -> Finding:
    """The GPU that a study would measure, one of `count`."""
    units = "CUs" if device.type == "hip" else "SMs"
    parts = [
        device.name,
        device.architecture,
        f"{device.processors} {units}",
        format_bytes(device.memory_bytes),
        f"L2 {format_bytes(device.l2_bytes)}",
        f"index {device.index} of {count} visible",
    ]
    return Finding("GPU", State.OK, ", ".join(parts))


def kernels(architecture: str, built_for: Sequence[str]) -> Finding:
    """Whether torch has kernels that run on `architecture`.

    Compiled ones run on their own major version from their minor one on, PTX is
    compiled for any later version (CUDA C++ Programming Guide, "Compute Capabilities"
    and "PTX Compatibility"). AMD's run on their own architecture.

    Args:
        architecture: of the GPU, such as ``sm_90`` or ``gfx942``.
        built_for: of `torch.cuda.get_arch_list`.
    """
    topic = "torch kernels"
    if not built_for:
        return Finding(topic, State.LIMITED, "torch does not tell which it has")
    fitting = [name for name in built_for if _runs_on(name, architecture)]
    if fitting:
        found = f"{fitting[-1]} runs on {architecture}"
        if fitting[-1].startswith("compute_"):
            found += ", compiled when it is first used"
        return Finding(topic, State.OK, found)
    return Finding(
        topic,
        State.MISSING,
        f"for {', '.join(built_for)}: none runs on {architecture}",
        "no operator of torch runs on this GPU: no kernel image",
        f"install torch for {architecture} (see pytorch.org/get-started)",
        blocks=True,
    )


def _runs_on(built_for: str, architecture: str) -> bool:
    built, wanted = (
        _ARCHITECTURE.fullmatch(built_for),
        _ARCHITECTURE.fullmatch(architecture),
    )
    if built is None or wanted is None:
        return built_for.partition(":")[0] == architecture  # then features: "xnack-"
    major, minor = int(built["major"]), int(built["minor"])
    here = int(wanted["major"]), int(wanted["minor"])
    if built["only"] == "a":  # what this one version has, and no other
        return here == (major, minor)
    if built["kind"] == "compute" and not built["only"]:
        return here >= (major, minor)
    return here[0] == major and here[1] >= minor


_ARCHITECTURE: Final = re.compile(
    r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<only>[af]?)"
)


def unusable(error: RuntimeError) -> Finding:
    """A GPU that torch lists and that fails when it is asked for its properties."""
    return Finding(
        "GPU",
        State.REFUSED,
        first_line(error),
        "the GPU is listed but does not answer",
        "nvidia-smi -q -d ECC,COMPUTE",
        blocks=True,
    )


def sharing(
    refusals: list[str], device: DeviceFacts, *, has_nvml: bool
) -> list[Finding]:
    """MPS, MIG and other compute processes, by the reasons that ``profile`` refuses.

    Args:
        refusals: of `layerscope.graphs.device.refusals`.
        device: the GPU.
        has_nvml: without it only MPS can be seen.
    """
    findings = [_refused(reason) for reason in refusals]
    refused = {finding.topic for finding in findings}
    return findings + [
        _undisturbed(topic, is_hip=device.type == "hip", has_nvml=has_nvml)
        for topic in SHARING_TOPICS
        if topic not in refused
    ]


def _refused(reason: str) -> Finding:
    topic, fix = next(
        (answer for words, answer in _REFUSALS.items() if words in reason), ("GPU", "")
    )
    found = reason
    if topic == "other processes":
        found = re.sub(r"\d+", lambda match: _named(match[0]), reason)
    meaning = "profile refuses: times would not be the layer's alone"
    return Finding(topic, State.REFUSED, found, meaning, fix, blocks=True)


def _named(pid: str) -> str:
    """``4711 (python3)``; the number alone where this container does not know it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return pid
    return f"{pid} ({name})"


def _undisturbed(topic: str, *, is_hip: bool, has_nvml: bool) -> Finding:
    if is_hip and topic != "other processes":
        return Finding(topic, State.NOT_APPLICABLE, "for NVIDIA GPUs")
    if is_hip:
        found, fix = "cannot be seen on ROCm", "rocm-smi --showpids"
    elif topic == "MPS" or has_nvml:
        return Finding(topic, State.OK, "none" if topic == "other processes" else "off")
    else:
        found, fix = "cannot be seen without NVML", "mend NVML"
    meaning = "nothing notices that the GPU is shared; times may be wrong"
    return Finding(topic, State.LIMITED, found, meaning, fix)


def variables(environ: Mapping[str, str] = os.environ) -> Finding:
    """Environment variables that change what is measured."""
    set_here = [name for name in _VARIABLES if environ.get(name, "") not in ("", "0")]
    if not set_here:
        return Finding("variables", State.OK, "none that changes what is measured")
    return Finding(
        "variables",
        State.LIMITED,
        ", ".join(f"{name}={environ[name]}" for name in set_here),
        "; ".join(_VARIABLES[name] for name in set_here),
        f"unset {' '.join(set_here)}",
    )


def peers(count: int, can_access: Callable[[int, int], bool]) -> Finding:
    """Whether every GPU reads and writes the memory of every other.

    Args:
        count: of GPUs that torch sees.
        can_access: tells it of two different GPUs.
    """
    if count < 2:  # noqa: PLR2004 (a pair)
        return Finding("peer access", State.NOT_APPLICABLE, "one GPU")
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    cut = [f"{a} → {b}" for a, b in pairs if not can_access(a, b)]
    if not cut:
        found = f"each of {count} GPUs reaches every other"
        return Finding("peer access", State.OK, found)
    return Finding(
        "peer access",
        State.LIMITED,
        f"not from GPU to GPU: {', '.join(cut)}",
        "ranks on these GPUs cannot exchange values by peer pointers",
        "nvidia-smi topo -p2p rw",
    )


def rocm() -> Finding:
    """What an AMD GPU gets."""
    if not torch.version.hip:
        return Finding("ROCm", State.NOT_APPLICABLE, "for AMD GPUs")
    return Finding(
        "ROCm",
        State.LIMITED,
        f"{torch.version.hip}: torch captures graphs, torch.profiler records",
        "kernels are mapped by order; layerscope has not been run on an AMD GPU yet, "
        "so check what it says",
    )
