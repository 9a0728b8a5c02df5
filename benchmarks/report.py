"""Times ``layerscope report`` on a run, and tells the size of the page.

A program of its own each time, as users start it: imports, reading, the page.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layerscope.units import NS_PER_S, format_bytes

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "fixtures" / "h200" / "qwen3-30b-a3b-tp1-rows6-bfloat16"
MOST_S = 3.0
MOST_BYTES = 5_000_000


def main(run: Path, rounds: int) -> bool:
    """Print times and size of the page of `run`; whether both are within bounds."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.html"
        write_s(run, output)  # fills the caches of files and bytecode
        times_s = [write_s(run, output) for _ in range(rounds)]
        size = output.stat().st_size
    median_s = statistics.median(times_s)
    print(f"run      {run}")
    print(
        f"time     {median_s:.2f} s, median of {rounds}; fastest {min(times_s):.2f} s"
    )
    print(f"size     {format_bytes(size)}")
    is_within = median_s <= MOST_S and size <= MOST_BYTES
    side = "within" if is_within else "beyond"
    print(f"{side} {MOST_S} s and {format_bytes(MOST_BYTES)}")
    return is_within


def write_s(run: Path, output: Path) -> float:
    """Wall time of writing one page, in seconds."""
    command = [sys.executable, "-m", "layerscope", "report", str(run)]
    start_ns = time.perf_counter_ns()
    done = subprocess.run(
        [*command, "--output", str(output)], cwd=ROOT, capture_output=True, check=False
    )
    duration_ns = time.perf_counter_ns() - start_ns
    if done.returncode:
        sys.exit(done.stderr.decode().strip())
    return duration_ns / NS_PER_S


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, default=RUN)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sys.exit(not main(arguments.run.resolve(), arguments.rounds))
