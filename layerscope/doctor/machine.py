"""The device, and what records, edits and compiles for it."""

from dataclasses import dataclass
from importlib import import_module
from typing import Final, TypeAlias

import torch

from layerscope.doctor import (
    compilers,
    cpu,
    driver,
    gpu,
    graph_features,
    recording,
)
from layerscope.doctor.gpu_state import GpuState, Unreadable, read_gpu
from layerscope.doctor.versions import Version
from layerscope.environment import DeviceFacts
from layerscope.graphs.device import facts, refusals
from layerscope.graphs.players import has_cuda_bindings
from layerscope.report.diagnosis import Finding, Section, not_applicable

Examined: TypeAlias = tuple[DeviceFacts | None, tuple[Section, ...]]
"""The device that a study would measure, and what was found of it."""

_FOR_NVIDIA: Final = "for NVIDIA GPUs"
_REFUSED: Final = "not tried on a GPU that profile refuses"
_GRAPHS: Final = (*graph_features.TOPICS, "programmatic edges")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that torch can use."""

    device: torch.device
    facts: DeviceFacts
    state: GpuState | Unreadable
    supports: Version | None
    """The newest CUDA of its driver."""

    refusals: list[str]
    """Why ``layerscope profile`` would not touch it now."""

    kernels: Finding
    """Whether torch has kernels for it."""

    @property
    def is_hip(self) -> bool:
        """Whether it is an AMD GPU."""
        return self.facts.type == "hip"

    @property
    def unrun(self) -> str:
        """Why nothing is run on it; empty where it can be."""
        if self.refusals:
            return _REFUSED
        return "torch has no kernels for it" if self.kernels.blocks else ""

    @property
    def untried(self) -> str:
        """Why graphs and NVRTC are not tried on it; empty where they are."""
        if self.is_hip:
            return _FOR_NVIDIA
        if not has_cuda_bindings(self.device):
            return "needs cuda-bindings"
        return self.unrun


def sections(wanted: str) -> Examined:
    """Everything on the device that ``--device`` `wanted` means here."""
    if wanted == "cpu":
        return _on_cpu(not_applicable(("GPU",), "--device cpu"))
    is_there, warning = gpu.torch_sees_gpu()
    if not is_there:
        told = _no_gpu(warning, wanted=wanted == "cuda")
        if told[0].blocks:
            return None, (Section("device", told),)
        return _on_cpu(told)
    try:
        found = _gpu()
    except RuntimeError as error:  # a GPU that is listed, but broken or taken
        return None, (Section("device", (gpu.unusable(error),)),)
    return found.facts, (
        Section("device", _device(found)),
        Section("recording", _recording(found)),
        Section("graphs", _graphs(found)),
        Section("compilers", _compilers(found)),
    )


def _on_cpu(told: tuple[Finding, ...]) -> Examined:
    """The CPU, with what is `told` of a GPU that is not measured."""
    device = torch.device("cpu")
    found = facts(device)
    profiler = recording.torch_profiler(
        recording.try_torch_profiler(device), is_gpu=False
    )
    known = {finding.topic for finding in told}
    of_gpus = (*driver.TOPICS, *gpu.SHARING_TOPICS, *gpu.OTHER_TOPICS)
    others = _for_gpus(tuple(topic for topic in of_gpus if topic not in known))
    graphs = (*graph_features.PACKAGES, *_GRAPHS)
    return found, (
        Section("device", (*cpu.findings(found), *told, *others)),
        Section("recording", (profiler, *_for_gpus(recording.GPU_TOPICS))),
        Section("graphs", _for_gpus(graphs)),
        Section("compilers", (compilers.cxx(), *_for_gpus(compilers.GPU_TOPICS))),
    )


def _no_gpu(warning: str, *, wanted: bool) -> tuple[Finding, ...]:
    """Why torch has no GPU; with the driver, where it has one and CUDA of its own."""
    state = read_gpu()
    missing = gpu.absent(state, warning, wanted=wanted)
    if torch.version.cuda is None or isinstance(state, Unreadable):
        return (missing,)
    supports = driver.supported_cuda(state)
    return missing, driver.driver(state, supports, torch.version.cuda)


def _for_gpus(topics: tuple[str, ...]) -> tuple[Finding, ...]:
    return not_applicable(topics, "for GPUs")


def _gpu() -> Gpu:
    """The current GPU; raises RuntimeError where it does not answer torch."""
    device = torch.device("cuda", torch.cuda.current_device())
    found = facts(device)
    reasons = refusals(device)  # before anything of ours runs there
    state = read_gpu(found.uuid)
    supports = None if found.type == "hip" else driver.supported_cuda(state)
    kernels = gpu.kernels(found.architecture, torch.cuda.get_arch_list())
    return Gpu(device, found, state, supports, reasons, kernels)


def _device(found: Gpu) -> tuple[Finding, ...]:
    count = torch.cuda.device_count()
    has_nvml = isinstance(found.state, GpuState)
    host = not_applicable(cpu.TOPICS, "the host only launches")
    if found.is_hip:
        of_driver = not_applicable(driver.TOPICS, _FOR_NVIDIA)
    else:
        of_driver = (
            driver.driver(found.state, found.supports, found.facts.runtime),
            driver.nvml(found.state),
            driver.clocks(found.state),
        )
    return (
        gpu.present(found.facts, count),
        *host,
        *of_driver,
        *gpu.sharing(found.refusals, found.facts, has_nvml=has_nvml),
        found.kernels,
        gpu.variables(),
        gpu.peers(count, torch.cuda.can_device_access_peer),
        gpu.rocm(),
    )


def _recording(found: Gpu) -> tuple[Finding, ...]:
    """CUPTI is tried first: it serves one client, and torch.profiler may keep it."""
    if found.unrun:
        tried = not_applicable(("torch.profiler", "CUPTI"), found.unrun)
        return (*tried, recording.nvtx())
    if found.is_hip:
        cupti = not_applicable(("CUPTI",), _FOR_NVIDIA)
    else:
        lacking = recording.cupti_packages(found.device)
        reason = recording.unfit(found.supports)
        if not (lacking or reason):
            reason = recording.try_cupti(found.device)
        cupti = (recording.cupti(lacking, found.supports, reason),)
    reason = recording.try_torch_profiler(found.device)
    profiler = recording.torch_profiler(reason, is_gpu=True)
    return (profiler, *cupti, recording.nvtx())


def _graphs(found: Gpu) -> tuple[Finding, ...]:
    if found.is_hip:
        return not_applicable((*graph_features.PACKAGES, *_GRAPHS), _FOR_NVIDIA)
    package = graph_features.bindings()
    early = graph_features.programmatic(found.facts.architecture)
    if found.untried:
        untried = not_applicable(graph_features.TOPICS, found.untried)
        return (package, *untried, early)
    runtime = import_module("cuda.bindings.runtime")
    return (package, *graph_features.findings(found.device, runtime), early)


def _compilers(found: Gpu) -> tuple[Finding, ...]:
    nvrtc = not_applicable(("NVRTC",), found.untried)
    if not found.untried:
        library = import_module("cuda.bindings.nvrtc")
        nvrtc = (compilers.nvrtc(library, found.facts.architecture),)
    others = (compilers.cc(), compilers.triton(), compilers.nvcc())
    return (*nvrtc, *others, *not_applicable(("C++ compiler",), "for CPUs"))
