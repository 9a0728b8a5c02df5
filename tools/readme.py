"""Writes the outputs of layerscope that README.md shows anew.

A shown output stands between two comments, of which the first names the command::

    <!-- $ layerscope show fixtures/NAME -->
    <!-- end -->

Usage: ``python tools/readme.py``. A test fails where README.md is not up to date.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
COLUMNS = 100

_SHOWN = re.compile(
    r"^<!-- \$ layerscope (?P<arguments>[^\n]+) -->\n.*?^<!-- end -->$",
    flags=re.DOTALL | re.MULTILINE,
)


def updated(text: str, run: Callable[[list[str]], str]) -> str:
    """`text` with every shown output replaced by what `run` gives for its command.

    Args:
        text: a Markdown document.
        run: from the arguments of layerscope to what it prints.
    """

    def shown(match: re.Match[str]) -> str:
        arguments = match["arguments"]
        lines = (line.rstrip() for line in run(shlex.split(arguments)).splitlines())
        output = "\n".join(lines).strip("\n")
        head = f"<!-- $ layerscope {arguments} -->"
        return f"{head}\n```text\n{output}\n```\n<!-- end -->"

    return _SHOWN.sub(shown, text)


def output(arguments: list[str]) -> str:
    """What ``layerscope`` with `arguments` prints, on a page of `COLUMNS` columns."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def main() -> None:
    """Bring README.md up to date."""
    text = README.read_text(encoding="utf-8")
    README.write_text(updated(text, output), encoding="utf-8")


if __name__ == "__main__":
    main()
