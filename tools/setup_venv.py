"""Makes the virtual environment of the checkout; installs layerscope and its backends.

Usage: ``python3 tools/setup_venv.py VENV EXTRA``, with an extra of pyproject.toml.
`make` runs it on the base Python, before anything is installed: standard library only.

A base Python that has a torch with a working GPU keeps it: the environment then sees
the packages of the base, and constraints hold only for what the base lacks. Anywhere
else torch comes from constraints.txt.
"""

import json
import re
import site
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINIMUM_TORCH = (2, 9)
CUPTI_CUDA = "13"
"""Major CUDA version of torch that the CUPTI of the extra ``cuda`` belongs to."""

_PROBE = """
import json
try:
    import torch
except ImportError:
    print("null")
else:
    gpu = torch.cuda.is_available()
    print(json.dumps([torch.__version__, torch.version.cuda or "", gpu]))
"""


class SetupError(Exception):
    """The environment cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Torch:
    """What an interpreter's torch says of itself."""

    version: str
    cuda: str  # "13.0"; empty for CPU and ROCm builds
    gpu: bool  # a GPU answers

    @property
    def usable_gpu(self) -> bool:
        """Whether layerscope can measure on a GPU through it."""
        major, minor = self.version.split(".")[:2]
        return self.gpu and (int(major), int(minor)) >= MINIMUM_TORCH

    @property
    def wants_cupti(self) -> bool:
        """Whether the extra ``cuda`` fits it."""
        return self.usable_gpu and self.cuda.split(".")[0] == CUPTI_CUDA


def main(folder: Path, extra: str) -> int:
    """Set up `folder` for `extra`; returns the exit code."""
    try:
        set_up(folder, extra)
    except SetupError as error:
        say(str(error))
        return 1
    return 0


def set_up(folder: Path, extra: str) -> None:
    """Make the environment where there is none, and install layerscope[`extra`]."""
    base = probe(Path(sys.executable))
    keep_base = base is not None and base.usable_gpu
    python = folder / "bin" / "python"
    if not python.exists():
        create(folder, keep_base=keep_base)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = folder / "constraints.txt"
    holding = without(lines, base_packages() if keep_base else set())
    constraints.write_text("\n".join(holding) + "\n", encoding="utf-8")
    say(f"installing layerscope[{extra}] into {folder}; the first time takes a minute")
    if not install(python, extra, constraints):
        msg = (
            f"pip could not install layerscope[{extra}] for the reason above; "
            "without a network, SETUP=none uses the packages that are there"
        )
        raise SetupError(msg)
    torch = probe(python)
    if torch is None:
        return
    if torch.wants_cupti:
        lost = "CUPTI cannot be installed; torch.profiler records on this GPU instead"
    elif is_for_tests_alone(extra, torch):
        lost = "CUDA's bindings cannot be installed; tests of what uses them skip"
    else:
        return
    if not install(python, "cuda", constraints):
        say(lost)


def is_for_tests_alone(extra: str, torch: Torch) -> bool:
    """Whether the bindings of CUDA are wanted though nothing here can use a GPU.

    Much of what is built on them is tested without one.
    """
    return extra == "dev" and not torch.cuda and sys.platform == "linux"


def probe(python: Path) -> Torch | None:
    """The torch of the interpreter `python`, or None if it cannot be imported."""
    done = subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None
    facts = json.loads(done.stdout.splitlines()[-1])
    return Torch(*facts) if facts else None


def create(folder: Path, *, keep_base: bool) -> None:
    """Make an empty environment, which sees the base's packages if `keep_base`.

    Raises:
        SetupError: this Python cannot make environments.
    """
    if find_spec("ensurepip") is None:
        msg = (
            f"{sys.executable} has no ensurepip; run `apt install python3-venv` "
            "(or name another Python: make PYTHON=...), then make again"
        )
        raise SetupError(msg)
    options = ["--clear", *(["--system-site-packages"] if keep_base else [])]
    command = [sys.executable, "-m", "venv", *options, str(folder)]
    if subprocess.run(command, check=False).returncode:
        msg = f"no environment could be made in {folder} for the reason above"
        raise SetupError(msg)
    if keep_base and sys.prefix != sys.base_prefix:
        # venv links to the Python below this one; what it sees must be this one's.
        for packages in folder.glob("lib/python*/site-packages"):
            lines = "\n".join(site.getsitepackages())
            (packages / "base.pth").write_text(lines + "\n", encoding="utf-8")


def base_packages() -> set[str]:
    """Normalised names of the distributions that this Python sees."""
    names = (found.metadata["Name"] for found in metadata.distributions())
    return {normalised(name) for name in names if name}


def normalised(name: str) -> str:
    """`name` as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def without(lines: list[str], names: set[str]) -> list[str]:
    """The constraint `lines` that do not name a package of `names`."""
    return [line for line in lines if normalised(line.split("==")[0]) not in names]


def install(python: Path, extra: str, constraints: Path) -> bool:
    """Install the checkout, editable, with one extra; whether it went well."""
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    what = ["--constraint", str(constraints), *editables(ROOT, extra)]
    return subprocess.run([*pip, *what], check=False).returncode == 0


def editables(root: Path, extra: str) -> list[str]:
    """What makes pip install the checkout at `root` with every backend in it.

    In one call, so that the backends find the layerscope they need beside them.
    """
    backends = sorted(file.parent for file in root.glob("backends/*/pyproject.toml"))
    return [
        word
        for target in (f"{root}[{extra}]", *map(str, backends))
        for word in ("--editable", target)
    ]


def say(line: str) -> None:
    """Tell the user one thing."""
    print(f"set-up: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
