"""Times ``import layerscope`` and ``layerscope --help`` against bare interpreters.

All commands run in turn, round by round, so that a busy machine slows all alike.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "python -c pass"
COMMANDS = {
    BASELINE: ["-c", "pass"],
    "import rich": ["-c", "import rich"],
    "import typer": ["-c", "import typer"],
    "import layerscope": ["-c", "import layerscope"],
    "layerscope --help": ["-m", "layerscope", "--help"],
}


def main(rounds: int) -> None:
    """Time every command `rounds` times and print medians and ratios."""
    times_ns: dict[str, list[int]] = {name: [] for name in COMMANDS}
    for name, arguments in COMMANDS.items():
        time_ns(arguments, name)  # fills the caches of files and bytecode
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            times_ns[name].append(time_ns(arguments, name))
    Console().print(table(times_ns))


def time_ns(arguments: Sequence[str], name: str) -> int:
    """Wall time of one run of this interpreter with `arguments`."""
    start_ns = time.perf_counter_ns()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, check=False
    )
    duration_ns = time.perf_counter_ns() - start_ns
    if done.returncode:
        sys.exit(f"{name} failed: {done.stderr.decode().strip()}")
    return duration_ns


def table(times_ns: dict[str, list[int]]) -> Table:
    """Median, fastest and ratio to the bare interpreter of each command."""
    rounds = len(times_ns[BASELINE])
    base_ns = statistics.median(times_ns[BASELINE])
    result = Table("command", title=f"start-up, {rounds} runs each")
    for heading in ("median ms", "min ms", f"against {BASELINE}"):
        result.add_column(heading, justify="right")
    for name, values in times_ns.items():
        median_ns = statistics.median(values)
        milliseconds = [f"{value / 1e6:.1f}" for value in (median_ns, min(values))]
        result.add_row(name, *milliseconds, f"{median_ns / base_ns:.2f} x")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    main(parser.parse_args().rounds)
