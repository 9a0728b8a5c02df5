"""Runs every kernel of the backends under compute-sanitizer, and keeps what it says.

Usage: ``python -m tools.memcheck [standard] [nvidia_mega] [-k EXPRESSION]``, on a
machine whose GPU lets itself be debugged. What runs are the tests that emulate kernels
on a CPU, here on the GPU: small, odd shapes, both types of weights. Every tensor is an
allocation of its own, so that a byte too far is seen. `memcheck` looks at memory,
`racecheck` at hazards in shared memory. Logs go to backends/NAME/memcheck/, one for
every file of kernels; a test of each backend holds them against the sources.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from layerscope.graphs.device import facts
from tools.memcheck_logs import NOT_RUN, Log, digest, errors
from tools.memcheck_plugin import STATUS

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = ROOT / "backends/standard/src/layerscope_standard/code"
WAITING: Final = {"draft_once": "its blocks wait for each other, not for long enough"}
"""Files that racecheck, which slows kernels down, cannot run, and why."""

_NOT_OF_KERNELS: Final = {
    *("test_backend.py", "test_delays.py", "test_layer.py"),
    "test_stamps.py",  # of builds that nothing is timed with, by a clock of a CPU
}
_NO_CUDA_SOURCE: Final = ("test_triton", "test_flashinfer")
"""How files of tests begin whose kernels are not of this source."""

_TOOLKITS: Final = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
_PADDING_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Package:
    """The kernels of one backend."""

    name: str
    kernels: Mapping[str, tuple[str, ...]]
    """By file."""

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return ROOT / "backends" / self.name / "memcheck"

    @property
    def code(self) -> Path:
        """Where the kernels are."""
        sources = ROOT / "backends" / self.name / "src" / f"layerscope_{self.name}"
        return sources / "code"

    @property
    def tests(self) -> list[str]:
        """The files of tests that run kernels alone."""
        folder = ROOT / "backends" / self.name / "tests"
        found = sorted(folder.glob("test_*.py"))
        return [
            str(path.relative_to(ROOT))
            for path in found
            if path.name not in _NOT_OF_KERNELS
            and not path.name.startswith(_NO_CUDA_SOURCE)
        ]


def package(name: str) -> Package:
    """The backend called `name`."""
    kernels = import_module(f"backends.{name}.tests.emulation").KERNELS
    return Package(name, kernels)


def sanitizer() -> str:
    """The program.

    Raises:
        SystemExit: it is not there.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), *_TOOLKITS])
    found = shutil.which("compute-sanitizer", path=path)
    if found is None:
        sys.exit(
            "compute-sanitizer is not there; it comes with the CUDA toolkit, or: "
            "pip install nvidia-cuda-sanitizer-api"
        )
    return found


def run(
    tool: str, of: Package, names: list[str], keyword: str
) -> tuple[str, dict[str, int]]:
    """What the sanitizer printed, and the launches of every kernel.

    Raises:
        SystemExit: a test failed under it.
    """
    command = [
        sanitizer(),
        *("--tool", tool, "--target-processes", "application-only"),
        *("--report-api-errors", "no", "--check-exit-code", "no"),
        *(f"--kernel-name=kernel_name={name}" for name in names),
        *(("--padding", str(_PADDING_BYTES)) if tool == "memcheck" else ()),
        *(sys.executable, "-m", "pytest", "-q", "-p", "tools.memcheck_plugin"),
        *("-p", "no:cacheprovider", "-k", keyword, *of.tests),
    ]
    with TemporaryDirectory() as folder:
        launches = Path(folder) / "launches"
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ
            | {"LAYERSCOPE_LAUNCHES": str(launches)}
            | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        lines = launches.read_text(encoding="utf-8") if launches.exists() else ""
    counts = {
        name: int(count)
        for _, name, count in (line.split() for line in lines.splitlines()[:-1])
    }
    if not lines.endswith(f"{STATUS} 0\n"):
        print(done.stdout)
        sys.exit(f"{of.name}: the tests do not pass under {tool}")
    return done.stdout, counts


def check(of: Package, keyword: str) -> list[str]:
    """Write the logs of a backend; what the sanitizer found."""
    found: dict[str, dict[str, int]] = {}
    launched: dict[str, int] = {}
    for tool in ("racecheck", "memcheck"):  # what the latter launched is told
        files = [
            file for file in of.kernels if tool == "memcheck" or file not in WAITING
        ]
        kernels = {file: of.kernels[file] for file in files}
        names = [name for each in kernels.values() for name in each]
        output, launched = run(tool, of, names, keyword)
        try:
            found[tool] = errors(output, kernels)
        except ValueError as error:
            print(output)
            sys.exit(f"{of.name}, {tool}: {error}")
        if any(found[tool].values()):
            print(output)
    write_logs(of, found, launched)
    return [
        f"{of.name}, {file}.cu: {tool}: {count} errors"
        for tool, counts in found.items()
        for file, count in counts.items()
        if count
    ]


def write_logs(
    of: Package, found: Mapping[str, Mapping[str, int]], launched: Mapping[str, int]
) -> None:
    """A log for every file of kernels.

    Args:
        of: the backend.
        found: errors by tool and file.
        launched: how often each kernel was.
    """
    device = facts(torch.device("cuda", torch.cuda.current_device()))
    version = subprocess.run(
        [sanitizer(), "--version"], capture_output=True, text=True, check=True
    )
    *_, told = version.stdout.strip().splitlines()
    of.folder.mkdir(exist_ok=True)
    for file, names in of.kernels.items():
        waits = WAITING.get(file)
        log = Log(
            source=digest(of.code / f"{file}.cu", SHARED),
            kernels=tuple(name for name in names if launched.get(name)),
            memcheck=f"{found['memcheck'][file]} errors",
            racecheck=(
                f"{NOT_RUN}{waits}" if waits else f"{found['racecheck'][file]} errors"
            ),
            device=f"{device.name}, {device.architecture}, driver {device.driver}",
            sanitizer=f"compute-sanitizer, {told}",
            command=f"python -m tools.memcheck {of.name}",
        )
        (of.folder / f"{file}.log").write_text(str(log), encoding="utf-8")


def main() -> None:
    """Check the backends that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("-k", dest="keyword", default="", metavar="EXPRESSION")
    flags = parser.parse_args()
    wrong = []
    for name in flags.backends or ("standard", "nvidia_mega"):
        wrong += check(package(name), flags.keyword)
    print("\n".join(wrong) or "no errors")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
