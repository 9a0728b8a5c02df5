"""What slices of a Perfetto trace say of the work of GPUs, in the words of each writer.

rocprofv3, rocprof-sys, PyTorch's profiler (converted) and layerscope give their kernels
categories and arguments of different names; others use events made for stages of GPUs.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from layerscope.ingest.perfetto_sequence import Sequence
from layerscope.ingest.perfetto_tracks import Track
from layerscope.schema import INT, TRACE_KINDS, Schema

KINDS: Final = {
    **dict.fromkeys(("kernel_dispatch", "rocm_kernel_dispatch", "kernel"), "kernel"),
    **dict.fromkeys(("memory_copy", "rocm_memory_copy", "gpu_memcpy"), "copy"),
    "gpu_memset": "fill",
}
"""Kinds of work by category."""

CALLS: Final = frozenset(
    {
        *("hip_api", "rocm_hip_api", "hip_runtime_api", "hip_compiler_api"),
        *("cuda_runtime", "cuda_driver"),
    }
)
HSA_CALLS: Final = frozenset({"hsa_api", "rocm_hsa_api"})
MARKERS: Final = frozenset({"marker_api", "rocm_marker_api", "user_annotation"})
"""Categories of all else that matters."""

_AXES: Final = ("x", "y", "z")
WORK: Final[Schema] = dict.fromkeys(
    (
        *("kind", "correlation", "device", "context", "stream"),
        *(f"{what}_{axis}" for what in ("grid", "block") for axis in _AXES),
        *("registers", "shared_bytes"),
    ),
    INT,
)
"""What a kernel, copy or fill has beside name, time and process; the kind is its place
in `schema.TRACE_KINDS`."""

_ROW: Final = dict.fromkeys(WORK)
_APIS_OF_KERNELS: Final = frozenset({3, 4, 5})  # OpenCL, CUDA, HIP
_COMPUTING: Final = 2  # a category of stages and queues
_TRAILING: Final = re.compile(r"(\d{1,18})\s*$")


def number(told: Mapping[str, Any], *names: str) -> int | None:
    """The first of the arguments `names` that has a number, or a text that ends in one.

    rocprofv3 writes ``Agent-4`` for an agent.
    """
    for name in names:
        value = told.get(name)
        if isinstance(value, str) and (found := _TRAILING.search(value)):
            value = int(found[1])
        if isinstance(value, int):
            return value
    return None


def correlation(told: Mapping[str, Any]) -> int | None:
    """What device work and the call that launched it have in common."""
    return number(told, "corr_id", "correlation", "correlation_id")


def work_of(
    category: str, told: Mapping[str, Any], track: Track
) -> tuple[int | None, ...] | None:
    """The row of `WORK` that a slice gives; None if it is no work of a GPU.

    Args:
        category: one of `KINDS`.
        told: its arguments.
        track: the one that it is on.
    """
    kind = told.get("kind")
    kind = kind if isinstance(kind, str) else KINDS[category]
    if kind not in TRACE_KINDS:  # such as an operator that ran on a CPU
        return None
    named = track.numbers_in_name()
    queue = _either(number(told, "queue", "queue_id", "context"), named["queue"])
    stream = _either(number(told, "stream_ID", "stream_id", "stream"), named["stream"])
    device = number(told, "agent", "device", "dst_agent")
    row = {
        "kind": TRACE_KINDS.index(kind),
        "correlation": correlation(told),
        "device": _either(device, named["device"]),
        "context": queue,
        "stream": _either(stream, _either(queue, track.number)),
        **_launch(told),
        "registers": _sum(told, "registers", "VGPR_Count", "Accum_VGPR_Count"),
        "shared_bytes": _sum(
            told, "LDS_Block_Size", "static_shared_bytes", "dynamic_shared_bytes"
        ),
    }
    return tuple((_ROW | row).values())


def stage_of(event: Any, sequence: Sequence) -> tuple[int | None, ...] | None:  # noqa: ANN401
    """The row of `WORK` that a stage of a GPU gives; None if it is one of graphics."""
    _, stage = sequence.stage(event.stage_iid)
    _, queue = sequence.stage(event.hw_queue_iid)
    # The library has had the field for some releases only.
    is_launch = "launch" in event.DESCRIPTOR.fields_by_name and event.HasField("launch")
    is_kernel = sequence.contexts.get(event.context) in _APIS_OF_KERNELS
    if not is_kernel and _COMPUTING not in {stage, queue} and not is_launch:
        return None
    row: dict[str, int | None] = {
        "kind": TRACE_KINDS.index("kernel"),
        "device": event.gpu_id,
        "context": event.context,
        "stream": event.hw_queue_iid or event.hw_queue_id,
    }
    if is_launch:
        for what, extent in (
            ("grid", event.launch.grid_size),
            ("block", event.launch.workgroup_size),
        ):
            row |= {f"{what}_{axis}": getattr(extent, axis) for axis in _AXES}
    return tuple((_ROW | row).values())


def _launch(told: Mapping[str, Any]) -> dict[str, int | None]:
    """Extents: an argument a direction, or one number for all, which goes to x."""
    block, grid = told.get("block"), told.get("grid")
    if isinstance(block, dict) and isinstance(grid, dict):
        return {
            f"{what}_{axis}": number(extent, axis)
            for what, extent in (("grid", grid), ("block", block))
            for axis in _AXES
        }
    threads, work_items = number(told, "workgroup_size"), number(told, "grid_size")
    if not threads or work_items is None or threads < 0:
        return {}
    return {"grid_x": -(-work_items // threads), "block_x": threads}


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _sum(told: Mapping[str, Any], *names: str) -> int | None:
    found = [value for name in names if (value := number(told, name)) is not None]
    return sum(found) if found else None
