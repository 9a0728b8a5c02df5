"""Gives readers thousands of damaged traces: all must be read or refused in one line.

    python -m benchmarks.fuzz_readers --inputs 20000 --seed 1

Each input is a small trace after a few random damages, see `benchmarks.fuzzing`. An
input fails if reading it raises anything but `InputError`, takes more than five seconds
of the processor, or more than 1 GiB of memory beside what an idle reader takes. Failing
inputs are kept, and the command returns 1.
"""

import argparse
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.fuzzing.mutations import damaged
from benchmarks.fuzzing.seeds import Seed, seeds
from layerscope.errors import InputError

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT_S: Final = 5
MEMORY_BYTES: Final = 1 << 30
READ, REFUSED = "read", "refused"
_STUCK_S: Final = 60  # of the clock: the alarm does not reach code that is not Python


class TooSlowError(BaseException):
    """Reading took more than `LIMIT_S`; no reader may catch it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input."""

    index: int
    format: str
    what: str
    """`READ`, `REFUSED`, or how it failed."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if an input failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input"
    )
    parser.add_argument("--keep", type=Path, default=Path("failing-inputs"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.inputs)
    if options.child:
        _limit_memory()
        for outcome in outcomes(numbers, options.seed):
            sys.stdout.write(f"{outcome.index}\t{outcome.format}\t{outcome.what}\n")
            sys.stdout.flush()
        return 0
    start_s = time.monotonic()
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in _guarded(numbers, options.seed):
        is_failure = outcome.what not in {READ, REFUSED}
        counts[outcome.format, "failed" if is_failure else outcome.what] += 1
        if is_failure:
            folder = keep(outcome, options.seed, options.keep)
            print(f"{outcome.format} {outcome.index}: {outcome.what}; see {folder}")
    Console().print(_table(counts, time.monotonic() - start_s))
    return int(any(what == "failed" for _, what in counts))


def damaged_seed(index: int, seed: int, whole: list[Seed]) -> Seed:
    """Input number `index` of those that `seed` gives; the same one every time."""
    random = Random(f"{seed} {index}")  # noqa: S311 (no secret)
    chosen = whole[index % len(whole)]
    name = random.choice([*chosen.files, next(iter(chosen.files))])
    others = [data for each in whole for data in each.files.values()]
    return Seed(
        chosen.format,
        {**chosen.files, name: damaged(chosen.files[name], others, random)},
    )


def outcomes(numbers: range, seed: int) -> Iterator[Outcome]:
    """Read inputs in this process, one after another."""
    whole = seeds()
    for index in numbers:
        given = damaged_seed(index, seed, whole)
        with tempfile.TemporaryDirectory() as folder:
            path = write(given, Path(folder))
            yield Outcome(index, given.format, outcome_of(path))


def write(given: Seed, folder: Path) -> Path:
    """The files of `given` in `folder`; the path of the one to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in given.files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(given.files))


def outcome_of(path: Path) -> str:
    """What becomes of reading `path`: `READ`, `REFUSED`, or how it failed."""
    from layerscope.ingest.read import ReadOptions, read_traces  # noqa: PLC0415

    before = signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        read_traces([path], options=ReadOptions(cache=False))
    except InputError as error:
        return "a message of several lines" if "\n" in str(error) else REFUSED
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _failure(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return READ


def _failure(error: BaseException) -> str:
    """What was raised, and where outside this file."""
    places = [
        f"{Path(place.filename).name}:{place.lineno}"
        for place in traceback.extract_tb(error.__traceback__)
        if place.filename != __file__
    ]
    where = places[-1] if places else "no place"
    return f"{type(error).__name__} at {where}: {str(error).partition(chr(10))[0]}"


def keep(outcome: Outcome, seed: int, folder: Path) -> Path:
    """Write the failing input to a folder of its own, which is returned."""
    own = folder / f"{seed}-{outcome.index}"
    write(damaged_seed(outcome.index, seed, seeds()), own)
    return own


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def _limit_memory() -> None:
    """Let this process have `MEMORY_BYTES` more address space than it has once warm."""
    for given in seeds():
        with tempfile.TemporaryDirectory() as folder:
            outcome_of(write(given, Path(folder)))
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    used = next(line for line in status.splitlines() if line.startswith("VmSize"))
    limit = int(used.split()[1]) * 1024 + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _guarded(numbers: range, seed: int) -> Iterator[Outcome]:
    """Read inputs in a process of their own, which is started anew where it dies."""
    whole = seeds()
    at = numbers.start
    while at < numbers.stop:
        for outcome in _of_child(range(at, numbers.stop), seed):
            at = outcome.index + 1
            yield outcome
        if at < numbers.stop:
            died = whole[at % len(whole)].format
            yield Outcome(at, died, "the process died, or did not answer")
            at += 1


def _of_child(numbers: range, seed: int) -> Iterator[Outcome]:
    command = [sys.executable, "-m", "benchmarks.fuzz_readers", "--child"]
    command += ["--first", str(numbers.start), "--inputs", str(len(numbers))]
    command += ["--seed", str(seed)]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child,
        selectors.DefaultSelector() as selector,
    ):
        assert child.stdout is not None  # noqa: S101 (it is a pipe)
        selector.register(child.stdout, selectors.EVENT_READ)
        rest = b""
        while selector.select(_STUCK_S):
            read = os.read(child.stdout.fileno(), 1 << 16)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                index, format_, what = line.decode().split("\t", 2)
                yield Outcome(int(index), format_, what)
        child.kill()


def _table(counts: Counter[tuple[str, str]], duration_s: float) -> Table:
    total = sum(counts.values())
    title = f"{total:,} damaged traces in {duration_s:.0f} s"
    table = Table("format", title=title)
    kinds = (READ, REFUSED, "failed")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for format_ in sorted({format_ for format_, _ in counts}):
        table.add_row(format_, *(f"{counts[format_, kind]:,}" for kind in kinds))
    sums = [sum(counts[key] for key in counts if key[1] == kind) for kind in kinds]
    table.add_section()
    table.add_row("all", *(f"{number:,}" for number in sums))
    return table


if __name__ == "__main__":
    sys.exit(main())
