"""Records the runs under fixtures/h200 on NVIDIA GPUs, and prints a line of each.

Usage: ``python benchmarks/record_fixtures.py FOLDER [PATTERN [SECONDS]]``. Two models,
whole and as the slice of one rank of four, at 1, 6 and 8 rows, in bf16 and with fp8
weights, each with its draft where the step has draft tokens; and a pair of foreign
callables. Studies that FOLDER already holds whole are not made again; PATTERN picks
some by name.

Everything is compiled first, by several processes at once: a study is then a process of
its own that finds its kernels in the caches, and measures while nothing else runs on
its GPU. What inductor tuned meanwhile was timed on a busy GPU, so that is forgotten and
in no other cache either, and every study tunes for itself. Several GPUs record as many
studies at a time. After SECONDS, compiling counted, no study is begun.
"""

import os
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from math import inf
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree

import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from layerscope.analyze.false_positives import false_positive_rate
from layerscope.analyze.statistics import anchor, linearity, noise_floor, pass_times
from layerscope.cli.options import LayerOptions
from layerscope.cli.plan import layer
from layerscope.layers.draft import DraftOptions, make_draft
from layerscope.layers.draft_spec import draft_of
from layerscope.layers.problem import ProblemOptions, make_problem
from layerscope.layers.spec import DType
from layerscope.registry import dispatch, dispatch_draft
from layerscope.run import Run, load
from layerscope.study import AA_SUFFIX, Arm

MODELS = ("qwen3-30b-a3b", "llama-3.1-8b")
RANKS = (1, 4)
ROWS = {1: (1, 0), 6: (1, 5), 8: (2, 3), 64: (8, 7), 256: (32, 7)}
"""Requests and draft tokens of a step of so many rows."""

FEW_ROWS = (1, 6, 8)
WEIGHTS = ("bfloat16", "float8_e4m3")
CONTEXT = 8192
WHOLE = ("qwen3-30b-a3b-tp1-rows6-bfloat16", "qwen3-30b-a3b-tp4-rows6-bfloat16")
"""The studies that get the whole protocol, experiments too; the others a part of it."""

SHORT = ["--captures", "5", "--samples", "250", "--time-budget", "20"]
SHORT += ["--no-experiments"]
FOREIGN = Path(__file__).resolve().parent / "foreign_pair.py"
COMPILERS = max(1, min(16, (os.cpu_count() or 1) // 2))
UNTUNED = {"TORCHINDUCTOR_BUNDLE_TRITON_INTO_FX_GRAPH_CACHE": "0"}
"""Environment of inductor: a cached graph brings no tuned kernels with it."""


@dataclass(frozen=True)
class Case:
    """One study of the matrix."""

    model: str
    ranks: int
    rows: int
    weights: str
    compiled: tuple[str, ...] = ("torch_compile",)
    """Backends that are compiled ahead."""

    @property
    def name(self) -> str:
        """The folder of its run."""
        return f"{self.model}-tp{self.ranks}-rows{self.rows}-{self.weights}"

    @property
    def flags(self) -> list[str]:
        """What describes it on the command line."""
        requests, draft_tokens = ROWS[self.rows]
        return [
            *("--model", self.model, "--context", str(CONTEXT)),
            *("--requests", str(requests), "--draft-tokens", str(draft_tokens)),
            *("--tp", str(self.ranks), "--weights", self.weights),
            *(["--shard-shaped"] if self.ranks > 1 else []),
        ]


CASES = [Case(*values) for values in product(MODELS, RANKS, FEW_ROWS, WEIGHTS)]


def compile_ahead(case: Case) -> str:
    """Build what `case` names for one pass, so that its kernels are in the caches."""
    requests, draft_tokens = ROWS[case.rows]
    options = LayerOptions(
        model=case.model,
        context=CONTEXT,
        requests=requests,
        draft_tokens=draft_tokens,
        tp=case.ranks,
        shard_shaped=case.ranks > 1,
        weights=DType(case.weights),
    )
    spec, _ = layer(options, torch.device("cuda"))
    arms = [Arm(backend=name) for name in case.compiled]
    start_s = time.monotonic()
    problem = make_problem(spec, ProblemOptions(passes=1, steps=1, device="cuda"))
    for arm in arms:
        dispatch(arm, problem)
    draft = draft_of(spec)
    if draft is not None:
        drafts = make_draft(draft, DraftOptions(passes=1, steps=1, device="cuda"))
        for arm in arms:
            dispatch_draft(arm, drafts)
    return f"compiled {case.name} in {time.monotonic() - start_s:.0f} s"


def compile_all(cases: Iterable[Case]) -> None:
    """Compile ahead, by several processes, and forget what inductor tuned meanwhile."""
    context = get_context("spawn")
    with ProcessPoolExecutor(COMPILERS, mp_context=context) as pool:
        for line in pool.map(compile_ahead, cases):
            print(line, flush=True)
    for tuned in Path(cache_dir()).rglob("*.best_config"):
        tuned.unlink()


def commands() -> Iterator[tuple[str, list[str]]]:
    """Name and command line of every study."""
    for case in CASES:
        effort = [] if case.name in WHOLE else SHORT
        yield case.name, ["--arms", "reference,torch_compile", *case.flags, *effort]
    yield "foreign-pair", ["--script", str(FOREIGN), *SHORT]


def record_all(
    folder: Path,
    pattern: str,
    studies: Iterable[tuple[str, list[str]]],
    cases: Iterable[Case],
    seconds: float = inf,
) -> None:
    """Record the studies that `pattern` names, and print one line each.

    Args:
        folder: where runs go; those that it holds whole are left.
        pattern: of names.
        studies: name and command line of each.
        cases: those that are compiled ahead.
        seconds: after which none is begun.

    Raises:
        SystemExit: there is no GPU.
    """
    count = torch.cuda.device_count()
    if not count:
        sys.exit("no NVIDIA GPU is visible; run it where there is one")
    until_s = time.monotonic() + seconds
    os.environ |= UNTUNED
    wanted = [
        (name, flags)
        for name, flags in studies
        if fnmatch(name, pattern) and not is_whole(folder / name)
    ]
    compiled = [
        case for case in cases if any(name.startswith(case.name) for name, _ in wanted)
    ]
    compile_all(compiled)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus: SimpleQueue[str] = SimpleQueue()
    for gpu in hidden.split(",") if hidden else map(str, range(count)):
        gpus.put(gpu)

    def on_a_free_gpu(study: tuple[str, list[str]]) -> str:
        if time.monotonic() > until_s:
            return f"{study[0]}: left for another time"
        gpu = gpus.get()
        try:
            return record(folder / study[0], study[1], gpu)
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(count) as threads:
        for line in threads.map(on_a_free_gpu, wanted):
            print(line, flush=True)


def record(path: Path, flags: list[str], gpu: str) -> str:
    """Record one study on one of the visible GPUs, and say what came out."""
    rmtree(path, ignore_errors=True)  # what an interrupted study left
    start_s = time.monotonic()
    command = [sys.executable, "-m", "layerscope", "profile", *flags, "-o", str(path)]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment
    )
    wall_s = time.monotonic() - start_s
    if done.returncode:
        return f"{path.name}: {done.stderr.strip().splitlines()[-1]}"
    run = load(path)
    line = f"{path.name}: {wall_s:.0f} s; {summary(run)}"
    return line if run.draft is None else f"{line}\n  draft: {summary(run.draft)}"


def arguments(given: list[str], what: str | None) -> tuple[Path, str, float]:
    """Folder, pattern of names and seconds, from the command line.

    Args:
        given: on it.
        what: the command does.

    Raises:
        SystemExit: the arguments are others, with what to type; or help was asked for.
    """
    parser = ArgumentParser(
        description=what, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the runs")
    parser.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="of their names"
    )
    parser.add_argument(
        "seconds",
        nargs="?",
        default=inf,
        type=float,
        metavar="SECONDS",
        help="after which none is begun",
    )
    flags = parser.parse_args(given)
    return flags.folder, flags.pattern, flags.seconds


def is_whole(path: Path) -> bool:
    """Whether a study was recorded to its end."""
    return (path / "run.json").is_file() and load(path).header.status == "complete"


def summary(run: Run) -> str:
    """Time of a pass by arm, noise floor, linearity and A/A splits of a run."""
    arms = [arm.name for arm in run.header.study.all_arms]
    times = pass_times(run.samples)
    base_ns = anchor(times, arms[0]).value
    floor_ns = noise_floor(times, arms[0], arms[-1])
    splits = false_positive_rate(times, arms[0], arms[-1], splits=200)
    bends = linearity(run.samples).filter(phase="anchor")["deviation_ns"].abs()
    bend_ns = max(bends.to_list(), default=0.0)
    named = ", ".join(
        f"{arm} {anchor(times, arm).value / 1e3:.1f} µs"
        for arm in arms
        if not arm.endswith(AA_SUFFIX)
    )
    return (
        f"{named}; noise floor {floor_ns / base_ns:.2%}, off the line at most "
        f"{bend_ns / base_ns:.2%}, A/A splits called different {splits.verdict:.1%} "
        f"(interval alone {splits.interval:.1%})"
    )


if __name__ == "__main__":
    FOLDER, PATTERN, SECONDS = arguments(sys.argv[1:], __doc__)
    record_all(FOLDER, PATTERN, commands(), CASES, SECONDS)
