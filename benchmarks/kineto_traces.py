"""Writes traces of PyTorch's profiler of any size, of which the truth is known.

The layout is that of torch 2.4 to 2.12. A launch has six entries, as in a real trace:
an operator within another, the call, the kernel, and both ends of the arrow between
these.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from isal import igzip

STEP_KERNELS: Final = 17_000
KERNEL_NS: Final = 8_000
GAP_NS: Final = 150
"""Between two kernels of a step; steps follow each other without one."""

BASE_NS: Final = 1_751_410_836_000_000_000
"""Unix time of the time 0 of the trace, as Kineto gives it."""

FIRST_NS: Final = 5_148_646_086_525_487
"""Start of the first kernel, since then."""

_LEAD_NS: Final = 6_000  # how much earlier the host is
_CODES: Final = 40
_KERNEL_ENTRIES: Final = 6
_BATCH: Final = 1_000

_HEAD: Final = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017755648,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": %d,
  "traceEvents": [
"""

_TAIL: Final = """
  ],
  "traceName": "made.pt.trace.json"
}
"""

_ROW: Final = """  {
    "name": "%s", "ph": "M", "ts": %s, "pid": %d, "tid": %d,
    "args": {
      "%s": "%s"
    }
  }"""

_LAUNCH: Final = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 3487, "tid": 3487,
    "ts": %(host)s, "dur": 5.900,
    "args": {
      "External id": %(id)d
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 3487, "tid": 3487,
    "ts": %(host)s, "dur": 5.100,
    "args": {
      "External id": %(id)d
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 3487, \
"tid": 3487,
    "ts": %(host)s, "dur": 4.003,
    "args": {
      "External id": %(id)d, "cbid": 211, "correlation": %(id)d
    }
  },
  {
    "ph": "s", "id": %(id)d, "pid": 3487, "tid": 3487, "ts": %(host)s,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "void gemm_kernel_%(code)d<bf16>(float*)", \
"pid": 0, "tid": 7,
    "ts": %(device)s, "dur": 8.000,
    "args": {
      "External id": %(id)d, "queued": 0, "device": 0, "context": 1, \
"stream": 7, "correlation": %(id)d, "registers per thread": 42, \
"shared memory": 128, "blocks per SM": 0.121212, \
"warps per SM": 0.242424, "grid": [16, 1, 1], "block": [64, 1, 1], \
"est. achieved occupancy %%": 0
    }
  },
  {
    "ph": "f", "id": %(id)d, "pid": 0, "tid": 7, "ts": %(device)s,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }"""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is in a trace that was written here."""

    kernels: int
    entries: int
    kernel_ns: int
    idle_ns: int
    """Between the first start and the last end, without any kernel."""


def write_trace(path: Path, kernels: int) -> Truth:
    """A trace of `kernels` at `path`, packed if that ends in ``.gz``."""
    rows = _rows()
    opened = igzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(_HEAD % BASE_NS)
        file.write(",\n".join(rows))
        _write_launches(file, kernels)
        file.write(_TAIL)
    steps = -(-kernels // STEP_KERNELS)
    return Truth(
        kernels=kernels,
        entries=len(rows) + _KERNEL_ENTRIES * kernels,
        kernel_ns=KERNEL_NS * kernels,
        idle_ns=GAP_NS * (kernels - steps),
    )


def _write_launches(file: IO[str], kernels: int) -> None:
    start_ns = FIRST_NS
    for first in range(0, kernels, _BATCH):
        launches = []
        for index in range(first, min(kernels, first + _BATCH)):
            launches.append(
                _LAUNCH
                % {
                    "id": index + 1,
                    "code": index % _CODES,
                    "host": microseconds(start_ns - _LEAD_NS),
                    "device": microseconds(start_ns),
                }
            )
            is_last_of_step = (index + 1) % STEP_KERNELS == 0
            start_ns += KERNEL_NS + (0 if is_last_of_step else GAP_NS)
        file.write(",\n" + ",\n".join(launches))


def _rows() -> list[str]:
    """Entries that name processes and threads."""
    start = microseconds(FIRST_NS)
    return [
        _ROW % ("process_name", start, 3487, 0, "name", "python"),
        _ROW % ("process_labels", start, 3487, 0, "labels", "CPU"),
        _ROW % ("thread_name", start, 3487, 3487, "name", "thread 3487 (python)"),
        _ROW % ("process_name", start, 0, 0, "name", "python"),
        _ROW % ("thread_name", start, 0, 7, "name", "stream 7"),
    ]


def microseconds(ns: int) -> str:
    """`ns` as Kineto writes times."""
    return f"{ns // 1_000}.{ns % 1_000:03}"
