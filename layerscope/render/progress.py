"""Progress with an estimate on a terminal, and one line anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from layerscope.progress import Progress, SilentProgress


class RichProgress:
    """Shows the current phase as a bar, with the time it will still take."""

    def __init__(self, bar: bars.Progress) -> None:
        """Show phases in `bar`, which the caller starts and stops."""
        self._bar = bar
        self._task: bars.TaskID | None = None

    def phase(self, name: str, total: int) -> None:
        """Replace the bar by that of a new phase."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=total)

    def advance(self, steps: int = 1) -> None:
        """Move the bar on."""
        if self._task is not None:
            self._bar.advance(self._task, steps)


class _Opened:
    """Says what is about to be done as the first phase begins."""

    def __init__(self, progress: Progress, opening: Callable[[], object]) -> None:
        self._progress = progress
        self._opening: Callable[[], object] | None = opening

    def phase(self, name: str, total: int) -> None:
        if self._opening is not None:
            self._opening()
            self._opening = None
        self._progress.phase(name, total)

    def advance(self, steps: int = 1) -> None:
        self._progress.advance(steps)


@contextmanager
def progress_on(stream: TextIO, opening: str) -> Iterator[Progress]:
    """A `Progress` for the block: a bar if `stream` is a terminal, silent if not.

    The line `opening` is written to either as the first phase begins: work that is
    refused before that is not announced.
    """
    if not stream.isatty():
        yield _Opened(SilentProgress(), lambda: _write_line(stream, opening))
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(file=stream), transient=True) as bar:
        yield _Opened(RichProgress(bar), lambda: bar.console.print(Text(opening)))


def _write_line(stream: TextIO, line: str) -> None:
    with suppress(OSError):  # a line that cannot be shown stops no measurement
        stream.write(f"{line}\n")
        stream.flush()
