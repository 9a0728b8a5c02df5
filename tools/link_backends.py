"""Lets Python find the backends of the checkout where nothing is installed.

Usage: ``python tools/link_backends.py FOLDER``. For every distribution below backends/
it writes into FOLDER what an installer would: metadata and entry points. With FOLDER
and the sources of the backends on PYTHONPATH, which it prints, they are found like
installed ones. Standard library only.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', flags=re.MULTILINE)


def link(project: Path, folder: Path) -> Path:
    """Write the ``.dist-info`` of a distribution into `folder`.

    Args:
        project: its folder, with a pyproject.toml that takes the version from a file.
        folder: where the metadata goes; what an earlier version left there is removed.

    Returns:
        The folder of its sources, to be put on the path.
    """
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text)
    about, hatch = settings["project"], settings["tool"]["hatch"]
    source: Path = project / hatch["version"]["path"]
    found = _VERSION.search(source.read_text(encoding="utf-8"))
    if found is None:
        msg = f'{source} has no line like __version__ = "1.0"'
        raise ValueError(msg)
    distribution = re.sub(r"[-_.]+", "_", about["name"]).lower()
    for old in folder.glob(f"{distribution}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    info = folder / f"{distribution}-{found['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\n"
        f"Name: {about['name']}\n"
        f"Version: {found['version']}\n"
        f"Summary: {about['description']}\n",
        encoding="utf-8",
    )
    points = about["entry-points"]
    (info / "entry_points.txt").write_text(_entry_points(points), encoding="utf-8")
    return source.parent.parent


def _entry_points(groups: dict[str, dict[str, str]]) -> str:
    """The groups as the ini file that installers write."""
    lines = []
    for group, entries in groups.items():
        lines += [
            f"[{group}]",
            *(f"{name} = {value}" for name, value in entries.items()),
        ]
    return "\n".join(lines) + "\n"


def main(folder: Path, root: Path = ROOT) -> None:
    """Link every backend below `root`, and print the path that finds them."""
    projects = sorted(file.parent for file in root.glob("backends/*/pyproject.toml"))
    sources = [link(project, folder) for project in projects]
    print(":".join(map(str, [folder.resolve(), *sources])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
