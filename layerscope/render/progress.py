"""Progress with an estimate on a terminal, and nothing anywhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich import progress as bars
from rich.console import Console

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


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """A `Progress` for the block: a bar if `stream` is a terminal, silent if not."""
    if not stream.isatty():
        yield SilentProgress()
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(file=stream), transient=True) as bar:
        yield RichProgress(bar)
