"""Distributions with backends, written into a folder that stands in for site-packages.

Nothing is built or downloaded: a module and a ``.dist-info`` is all that an installed
distribution is.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parent.parent
GROUP = "layerscope.backends"


def install(
    site: Path,
    name: str,
    source: str,
    *,
    version: str = "1.0",
    backend: str | None = None,
) -> None:
    """Install the distribution `name` with one module and one backend.

    Args:
        site: the folder, to be on the path.
        name: of the distribution; the module has it with underscores.
        source: text of the module, which holds ``BACKEND``.
        version: of the distribution.
        backend: name of the entry point; the distribution's by default.
    """
    module = name.replace("-", "_")
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(dedent(source), encoding="utf-8")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\n{backend or name} = {module}:BACKEND\n",
        encoding="utf-8",
    )


@dataclass(frozen=True)
class Environment:
    """A virtual environment without packages, but for those that this one has."""

    folder: Path

    @property
    def site(self) -> Path:
        """Where distributions are installed."""
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder)}))

    def layerscope(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        return self.python("-m", "layerscope", *arguments)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an interpreter to its end, in the environment's folder."""
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [self.folder / "bin" / "python", *arguments],
            cwd=self.folder,
            env=inherited | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


def offers(distribution: Distribution) -> bool:
    """Whether somebody else's distribution offers a backend."""
    return distribution.name != "layerscope" and any(
        entry.group == GROUP for entry in distribution.entry_points
    )


def environment(folder: Path) -> Environment:
    """A fresh virtual environment in `folder`.

    Packages that tests run with are on its path, after its own, but for backends: which
    of those are installed here is no matter of the tests.
    """
    venv.create(folder, with_pip=False)
    made = Environment(folder)
    packages = folder / ".packages"  # where pytest does not look for tests
    packages.mkdir()
    for site in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for found in site.iterdir():
            link = packages / found.name
            if _is_package(found) and not link.exists():
                link.symlink_to(found)
    ours = f"{ROOT}\n{packages}\n"
    (made.site / "ours.pth").write_text(ours, encoding="utf-8")
    return made


def _is_package(found: Path) -> bool:
    """Whether what is in a folder of packages is to be seen elsewhere, too."""
    if found.suffix == ".dist-info":
        return not offers(PathDistribution(found))
    return found.suffix != ".pth" and found.name != "__pycache__"
