"""Times ``layerscope export --all`` on a run of a million kernels, and its memory.

The run is made by hand: two arms whose kernels have gaps, overlap on one stream, come
from 120 kinds of code, and follow each other along edges. The export runs in a process
of its own, whose largest resident set is what the system says of it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import polars as pl

from layerscope.environment import DeviceFacts, Environment
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec
from layerscope.run import RunWriter
from layerscope.run_header import RunHeader
from layerscope.schema import KERNELS
from layerscope.study import Arm, Study

ARMS = ("reference", "fused")
PASSES = 24
PASS_KERNELS = 80
CODES = 120
PERIOD_NS = 10_000
EARLY = 4  # every so many kernels, one starts early
REGIONS = ("attention", "o_proj_all_reduce", "moe")


def main(count: int) -> None:
    """Export about `count` kernels once, and print what that took."""
    with tempfile.TemporaryDirectory() as folder:
        run, trace = Path(folder, "run"), Path(folder, "run.pftrace")
        # Elsewhere: what this process holds would count as the child's largest set.
        with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:
            kernels = elsewhere.submit(write_run, run, count).result()
        command = [sys.executable, "-m", "layerscope", "export", str(run), "--all"]
        start_ns = time.perf_counter_ns()
        child = subprocess.Popen([*command, "-o", str(trace)])
        _, status, usage = os.wait4(child.pid, 0)
        seconds = (time.perf_counter_ns() - start_ns) / 1e9
        if status:
            sys.exit(f"layerscope export failed with status {status}")
        print(f"kernels        {kernels:,}")
        print(f"trace          {trace.stat().st_size / 1e6:,.0f} MB")
        print(f"time           {seconds:.1f} s")
        print(f"processors     {usage.ru_utime + usage.ru_stime:.1f} s")
        print(f"peak memory    {usage.ru_maxrss / 1e3:,.0f} MB")


def write_run(folder: Path, count: int) -> int:
    """A run of at least `count` kernels at `folder`; how many it has."""
    environment = Environment(
        device=DeviceFacts(type="cuda", name="none", architecture="sm_90"),
        platform="Linux",
        python="3.11",
        packages={},
    )
    study = Study(
        spec=LayerSpec(model=preset("qwen3-30b-a3b")),
        arms=tuple(Arm(backend=name) for name in ARMS),
    )
    header = RunHeader(created="", command=[], study=study, environment=environment)
    writer = RunWriter(folder, header)
    replays = -(-count // (len(ARMS) * PASSES * PASS_KERNELS))
    for arm in ARMS:
        writer.add_kernels(kernels_of(arm, replays))
    writer.set_edges(pl.concat(map(edges_of, ARMS)))
    writer.checkpoint()
    return writer.kernels.height


def kernels_of(arm: str, replays: int) -> pl.DataFrame:
    """`replays` of an arm; every fourth kernel starts before the one before it ends."""
    row = pl.int_range(replays * PASSES * PASS_KERNELS)
    node = row % (PASSES * PASS_KERNELS)
    number = node % PASS_KERNELS
    replay = row // (PASSES * PASS_KERNELS)
    varied_ns = row * 7_919 % 1_000  # the same in every run of this
    early_ns = pl.when(number % EARLY == 1).then(2_000).otherwise(0)
    region = number * len(REGIONS) // PASS_KERNELS
    columns: dict[str, pl.Expr] = {
        **{name: pl.lit(1) for name, dtype in KERNELS.items() if dtype.is_integer()},
        "arm": pl.lit(arm),
        "experiment": pl.lit("captured"),
        "round": replay,
        "replay": replay,
        "pass_index": node // PASS_KERNELS,
        "node": node,
        "kind": pl.lit("kernel"),
        "name": pl.format("void kernel_{}<bfloat16, 128>(float*)", node % CODES),
        "region": region.replace_strict(dict(enumerate(REGIONS))),
        "role": pl.lit(None, pl.String),
        "pass_start_ns": node // PASS_KERNELS * PASS_KERNELS * PERIOD_NS,
        "start_ns": pl.when(number > 0)
        .then(number * PERIOD_NS + varied_ns - early_ns)
        .otherwise(0),
        "duration_ns": PERIOD_NS - 1_000 + varied_ns,
        "grid_x": node % CODES + 1,
        "block_x": 128 * (node % 4 + 1),
        "registers": 32 + node % CODES,
        "dynamic_shared_bytes": node % 5 * 16_384,
    }
    return pl.select(columns[name].alias(name) for name in KERNELS)


def edges_of(arm: str) -> pl.DataFrame:
    """A chain through all nodes of a replay; those into early kernels programmatic."""
    target = pl.int_range(1, PASSES * PASS_KERNELS)
    is_early = target % PASS_KERNELS % EARLY == 1
    return pl.select(
        arm=pl.lit(arm),
        experiment=pl.lit("captured"),
        source=target - 1,
        target=target,
        programmatic=is_early,
        from_port=is_early.cast(pl.Int64),
        to_port=pl.lit(0),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    main(parser.parse_args().kernels)
