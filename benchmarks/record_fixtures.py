"""Records the runs under fixtures/ on one NVIDIA GPU, and prints what they cost.

Usage: ``python benchmarks/record_fixtures.py FOLDER``. Each study is a process of its
own: `qwen3-30b-a3b`, 6 rows (1 request, 5 draft tokens), 8K context, the reference and
its A/A capture; once whole and once as the slice of one rank of four.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

from layerscope.analyze.false_positives import false_positive_rate
from layerscope.analyze.statistics import anchor, linearity, noise_floor, pass_times
from layerscope.run import Run, load

STUDIES = {
    "h200-qwen3-30b-a3b-tp1": ["--tp", "1"],
    "h200-qwen3-30b-a3b-tp4": ["--tp", "4", "--shard-shaped"],
}
COMMON = [
    *("--model", "qwen3-30b-a3b", "--layer", "0", "--arms", "reference"),
    *("--requests", "1", "--draft-tokens", "5", "--context", "8192"),
]


def main(folder: Path) -> None:
    """Record every study into `folder` and print one line each."""
    for name, flags in STUDIES.items():
        output = folder / name
        start_s = time.monotonic()
        command = ["-m", "layerscope", "profile", *COMMON, *flags, "-o", str(output)]
        subprocess.run([sys.executable, *command], check=True)
        wall_s = time.monotonic() - start_s
        # Linux gives KiB, and the largest of all children so far.
        host_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
        print(f"{name}: {wall_s:.0f} s in all, host memory at most {host_gb:.1f} GB")
        print(f"  {summary(load(output))}")


def summary(run: Run) -> str:
    """Time of a pass, noise floor, linearity and A/A splits of a run."""
    base, again = (arm.name for arm in run.header.study.all_arms)
    times = pass_times(run.samples)
    pass_ns = anchor(times, base).value
    floor_ns = noise_floor(times, base, again)
    splits = false_positive_rate(times, base, again, splits=200)
    bends = linearity(run.samples).filter(phase="anchor")["deviation_ns"].abs()
    bend_ns = float(bends.to_numpy().max())
    return (
        f"anchor {pass_ns / 1e3:.1f} µs, noise floor {floor_ns / pass_ns:.2%}, "
        f"off the line at most {bend_ns / pass_ns:.2%}, A/A splits called different "
        f"{splits.verdict:.1%} (interval alone {splits.interval:.1%})"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
