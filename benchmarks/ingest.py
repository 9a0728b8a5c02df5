"""Times reading a trace of a million events, and its memory, beside HTA's reading it.

Each reading has a process of its own, which tells its largest resident set at the end.
HTA (facebookresearch/HolisticTraceAnalysis) needs an environment of its own, since it
crashes with pandas 3:

    python -m venv hta
    hta/bin/pip install HolisticTraceAnalysis==0.5.0 pandas==2.2.3
    python -m benchmarks.ingest --hta hta/bin/python
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kineto_traces import Truth, write_trace

ROOT: Final = Path(__file__).resolve().parent.parent
KERNELS: Final = 170_000
SIZES: Final = (1, 2, 4)

LAYERSCOPE: Final = """
import json, resource, sys, time
import polars as pl
from layerscope.analyze.intervals import sweep
from layerscope.ingest.read import ReadOptions, read_trace

class Watch:
    parsing_kb = 0
    def phase(self, name, total): pass
    def advance(self, steps=1):
        self.parsing_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

watch, start = Watch(), time.perf_counter()
trace = read_trace(sys.argv[1], ReadOptions(cache=False, progress=watch))
used, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
kernels = trace.kernels.filter(kind="kernel").with_columns(
    end_ns=pl.col("start_ns") + pl.col("duration_ns"), node=pl.int_range(pl.len()))
print(json.dumps({
    "read_s": seconds,
    "processor_s": used.ru_utime + used.ru_stime,
    "peak_mb": used.ru_maxrss / 1e3,
    "parsing_mb": watch.parsing_kb / 1e3,
    "frames_mb": sum(
        frame.estimated_size() for frame in (trace.kernels, trace.calls, trace.ranges)
    ) / 1e6,
    "kernels": kernels.height,
    "kernel_ns": kernels["duration_ns"].sum(),
    "idle_ns": sweep(kernels, ["device"])["gap_ns"].sum(),
}))
"""

HTA: Final = """
import json, resource, sys, time
from hta.common.trace import Trace

start = time.perf_counter()
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="/")
trace.parse_traces(use_multiprocessing=False, use_memory_profiling=False)
used, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
frame = trace.get_trace(0)
kernels = frame[frame["stream"] >= 0].sort_values("ts")
start_us, end_us = kernels["ts"], kernels["ts"] + kernels["dur"]
gaps_us = (start_us - end_us.cummax().shift()).clip(lower=0)
print(json.dumps({
    "read_s": seconds,
    "processor_s": used.ru_utime + used.ru_stime,
    "peak_mb": used.ru_maxrss / 1e3,
    "kernels": len(kernels),
    "kernel_ns": int(round(kernels["dur"].sum() * 1000)),
    "idle_ns": int(round(gaps_us.sum() * 1000)),
}))
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one file, as its process told of it."""

    read_s: float
    """Without loading the reader's code."""

    processor_s: float
    """Of the process up to then, code included."""

    peak_mb: float
    kernels: int
    kernel_ns: int
    idle_ns: int
    parsing_mb: float | None = None
    """Peak when the last byte had been read."""

    frames_mb: float | None = None
    """Of what was read, as it is handed on: it grows with the trace."""


def main() -> None:
    """Write traces of several sizes, have them read, and print what that took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=KERNELS, help="in the smallest")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--hta", type=Path, help="a Python that has HTA 0.5.0")
    parser.add_argument("--folder", type=Path, help="for traces; needs 1 GB")
    options = parser.parse_args()
    heads = "".join(f"{name:>10}" for name in ("peak", "parsing", "frames"))
    print(f"{'reader':16} {'time':>8} {'processor':>10}{heads}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for size in options.sizes:
            for name in (f"{size}x.json", f"{size}x.json.gz"):
                path = Path(folder, name)
                truth = write_trace(path, options.kernels * size)
                compare(path, truth, options.hta)
                path.unlink()


def compare(path: Path, truth: Truth, hta: Path | None) -> None:
    """Read `path` by layerscope and by HTA, and print both and their ratios."""
    size_mb = path.stat().st_size / 1e6
    print(f"{path.name}: {truth.entries:,} entries, {size_mb:,.1f} MB")
    ours = reading(Path(sys.executable), LAYERSCOPE, path)
    show("layerscope", ours, truth)
    if hta is not None:
        theirs = reading(hta, HTA, path)
        show("HTA", theirs, truth)
        print(
            f"{'  HTA / layerscope':18} {theirs.read_s / ours.read_s:5.1f}x "
            f"{theirs.processor_s / ours.processor_s:9.1f}x "
            f"{theirs.peak_mb / ours.peak_mb:8.1f}x"
        )


def reading(python: Path, code: str, path: Path) -> Reading:
    """What `code` tells of reading `path`, in a process of its own."""
    done = subprocess.run(
        [python, "-c", code, path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # HTA logs there
        check=True,
    )
    return Reading(**json.loads(done.stdout.splitlines()[-1]))


def show(reader: str, found: Reading, truth: Truth) -> None:
    """Print one reading, and what it has wrong."""
    own = (found.parsing_mb, found.frames_mb)
    parsing = " ".join(f"{size:6.0f} MB" for size in own if size is not None)
    print(
        f"  {reader:14} {found.read_s:6.2f} s {found.processor_s:8.2f} s "
        f"{found.peak_mb:6.0f} MB {parsing}"
    )
    for name in ("kernels", "kernel_ns", "idle_ns"):
        told, true = getattr(found, name), getattr(truth, name)
        if told != true:
            print(f"  {'':14} {name} {told:,}, where {true:,} is true")


if __name__ == "__main__":
    main()
