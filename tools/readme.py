"""Writes anew the outputs that README.md and docs show: of layerscope, and of scripts.

A shown output stands between two comments, of which the first names the command::

    <!-- $ layerscope show fixtures/NAME -->
    <!-- end -->
    <!-- $ python benchmarks/fixtures_table.py fixtures/h200 -->
    <!-- end -->

What layerscope prints is shown as it is, what a script prints is Markdown. Of a command
that ends in ``| sed '/^$/q'``, what stands above the first empty line is shown; of one
that ends in ``| sed -n '/^TITLE/,/^$/p'``, what stands from a line that begins so to
the next empty one: a table.

Usage: ``python tools/readme.py``. A test fails where a document is not up to date.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    *("docs/accuracy.md", "docs/gate.md", "docs/index.md", "docs/ledger.md"),
    *("docs/switches.md", "docs/terminal.md", "docs/your-own-trace.md"),
)
"""Those that show outputs."""

COLUMNS = 100

_SHOWN = re.compile(
    r"^<!-- \$ (?P<program>layerscope|python) (?P<arguments>[^\n]+?)"
    r"(?P<cut> \| sed (?:'/\^\$/q'|-n '/\^(?P<title>[^/\n]+)/,/\^\$/p'))? -->\n.*?"
    r"^<!-- end -->$",
    flags=re.DOTALL | re.MULTILINE,
)


def updated(text: str, run: Callable[[list[str]], str]) -> str:
    """`text` with every shown output replaced by what `run` gives for its command.

    Args:
        text: a Markdown document.
        run: from program and arguments to what it prints.
    """

    def shown(match: re.Match[str]) -> str:
        program, arguments = match["program"], match["arguments"]
        printed = run([program, *shlex.split(arguments)])
        output = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
        if match["title"]:
            output = beginning(output, match["title"])
        elif match["cut"]:
            output, *_ = output.split("\n\n")
        block = (
            f"```text\n{output}\n```" if program == "layerscope" else f"\n{output}\n"
        )
        command = f"{program} {arguments}{match['cut'] or ''}"
        return f"<!-- $ {command} -->\n{block}\n<!-- end -->"

    return _SHOWN.sub(shown, text)


def beginning(output: str, title: str) -> str:
    """The parts of `output` from a line that begins with `title` to an empty one.

    Raises:
        ValueError: no line begins so.
    """
    part = rf"^{re.escape(title)}.*?(?=\n\n|\Z)"
    parts = re.findall(part, output, flags=re.DOTALL | re.MULTILINE)
    if not parts:
        msg = f"no line that is printed begins with {title!r}"
        raise ValueError(msg)
    return "\n\n".join(parts)


def output(command: list[str]) -> str:
    """What `command` prints, on a page of `COLUMNS` columns."""
    program, *arguments = command
    module = ["-m", "layerscope"] if program == "layerscope" else []
    environment = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *module, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def main() -> None:
    """Bring every document up to date."""
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(updated(text, output), encoding="utf-8")


if __name__ == "__main__":
    main()
