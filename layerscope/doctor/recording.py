"""Recorders, each tried on one small kernel that is captured and launched."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch

from layerscope.doctor.versions import (
    Version,
    first_line,
    installed,
    version_of,
    written,
)
from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerPlayer
from layerscope.graphs.players import has_cuda_bindings
from layerscope.graphs.replay import Player
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.record.recorder import Launch, Recorder, fault
from layerscope.record.torch_profiler import TorchProfilerRecorder
from layerscope.regions import Region, layer_pass, region
from layerscope.report.diagnosis import Finding, State

GPU_TOPICS: Final = ("CUPTI", "nvtx")

_FALLBACK: Final = (
    "torch.profiler records instead, and kernels are mapped to regions by order"
)
_PARAMETERS: Final = Path("/proc/driver/nvidia/params")


def attempt(recorder: Recorder, player: Player, device: torch.device) -> str:
    """Why `recorder` cannot record a replay of `player`; empty where it can."""
    x = torch.zeros(8, device=device)

    def body(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index), region(Region.OTHER):
                x.add_(1)

    replay = player.capture(body, 1)
    try:
        with recorder.attached():
            (recorded,) = recorder.record([Launch(replay, "doctor", 0, 0)])
    finally:
        replay.close()
    unmapped = f"{recorded.unmapped} records belong to no node"
    return fault(recorded) or (unmapped if recorded.unmapped else "")


def try_torch_profiler(device: torch.device) -> str:
    """Why torch.profiler cannot record on `device`; empty where it can."""
    player = EagerPlayer() if device.type == "cpu" else TorchGraphPlayer()
    try:
        return attempt(TorchProfilerRecorder(device), player, device)
    except (MeasurementError, RuntimeError) as error:
        return first_line(error)


def torch_profiler(reason: str, *, is_gpu: bool) -> Finding:
    """Whether torch.profiler sees what a layer runs.

    Args:
        reason: why it does not; empty where it does.
        is_gpu: whether kernels were looked for, or operators.
    """
    if not reason:
        seen = "a kernel of a graph" if is_gpu else "an operator"
        return Finding("torch.profiler", State.OK, f"recorded {seen}")
    return Finding(
        "torch.profiler",
        State.MISSING,
        reason,
        "no regions without CUPTI" if is_gpu else "only whole passes are measured",
        "layerscope profile --recorder none, or a build of torch with Kineto",
    )


def try_cupti(device: torch.device) -> str:
    """Why CUPTI cannot record on `device`; empty where it can.

    Needs cuda-bindings and cupti-python.
    """
    try:
        cupti = import_module("cupti.cupti")
        players = import_module("layerscope.graphs.cuda")
        recorders = import_module("layerscope.record.cupti")
    except (ImportError, RuntimeError) as error:
        return first_line(error)
    try:
        recorder = recorders.CuptiRecorder()
        return attempt(recorder, players.GraphPlayer(), device)
    except (MeasurementError, RuntimeError, cupti.cuptiError) as error:
        return first_line(error)


def cupti_packages(device: torch.device) -> list[str]:
    """What CUPTI lacks here; empty where it can be tried."""
    lacking = [] if has_cuda_bindings(device) else ["cuda-bindings"]
    return lacking if find_spec("cupti") else [*lacking, "cupti-python"]


def unfit(supports: Version | None) -> str:
    """Why the installed CUPTI is not tried; empty where it can be.

    It must not be newer than the newest CUDA of the driver, nor cupti-python, which
    lays out its records, newer than it: records only ever grow at their end.
    """
    library = version_of(installed("nvidia-cuda-cupti"))
    if library is None:
        return ""
    if supports is not None and library > supports:
        return f"newer than the driver, which is for CUDA {written(supports)}"
    layouts = version_of(installed("cupti-python"))
    if layouts is not None and layouts > library:
        return "cupti-python lays out longer records than this CUPTI writes"
    return ""


def cupti(lacking: list[str], supports: Version | None, reason: str) -> Finding:
    """Whether every kernel, copy and fill of a graph is recorded with its node.

    Args:
        lacking: packages that are not installed.
        supports: the newest CUDA of the driver.
        reason: `unfit`, or why a try failed; empty where it did not.
    """
    if lacking:
        found = f"not installed: {', '.join(lacking)}"
        return Finding("CUPTI", State.MISSING, found, _FALLBACK, _install(supports))
    library = installed("nvidia-cuda-cupti") or "of the system"
    found = f"cupti-python {installed('cupti-python')}, CUPTI {library}"
    if not reason:
        seen = f"{found}, recorded a kernel of a graph with its node{_counters()}"
        return Finding("CUPTI", State.OK, seen)
    meaning = (
        "profile --recorder auto fails here when it records; with --recorder "
        "torch.profiler kernels are mapped to regions by order"
    )
    fix = "layerscope profile --recorder torch.profiler; or end nsys, ncu or cuda-gdb"
    if unfit(supports):
        fix = _install(supports or version_of(library))
    return Finding("CUPTI", State.LIMITED, f"{found}: {reason}", meaning, fix)


def _install(supports: Version | None) -> str:
    """The packages that fit a driver for CUDA 13; older drivers must be replaced."""
    if supports is None:
        return "pip install 'layerscope[cuda]'"
    if supports[0] < 13:  # noqa: PLR2004 (the CUDA that the extra is made for)
        return "install a driver for CUDA 13 (580 or newer)"
    fitting = f"{written(supports)}.*"
    return (
        "pip install 'layerscope[cuda]' "
        f"'cupti-python=={fitting}' 'nvidia-cuda-cupti=={fitting}'"
    )


def _counters() -> str:
    """A remark where the driver keeps hardware counters from users.

    ERR_NVGPUCTRPERM is of counters; records of kernels need no such right.
    """
    try:
        lines = _PARAMETERS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    if "RmProfilingAdminOnly: 1" not in lines:
        return ""
    return "; hardware counters are for root only, which records do not need"


def nvtx() -> Finding:
    """Ranges for whoever profiles layerscope itself."""
    version = installed("nvtx")
    if version:
        return Finding("nvtx", State.OK, version)
    return Finding(
        "nvtx",
        State.MISSING,
        "not installed",
        "Nsight Systems shows no ranges of arms, passes and regions; runs are complete",
        "pip install nvtx",
    )
