"""Progress with an estimate on a terminal or in a notebook, else a line at most."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from html import escape
from typing import Any, Final, TextIO

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from layerscope.progress import Progress, SilentProgress

_EVERY_S: Final = 0.2
"""Seconds between two pictures of a bar in a notebook: each is a message to it."""


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


class NotebookProgress:
    """The same in the output of a notebook's cell, by IPython alone.

    The bars of rich need ipywidgets to move there.
    """

    def __init__(self, show: Callable[[str], object]) -> None:
        """Show phases by calling `show` with HTML that replaces what it showed."""
        self._show = show
        self._name, self._total, self._done = "", 0, 0
        self._began_s = self._shown_s = 0.0

    def phase(self, name: str, total: int) -> None:
        """Replace the bar by that of a new phase."""
        self._name, self._total, self._done = name, total, 0
        self._began_s = time.monotonic()
        self._draw()

    def advance(self, steps: int = 1) -> None:
        """Move the bar on."""
        self._done += steps
        is_last = self._done >= self._total
        if is_last or time.monotonic() - self._shown_s >= _EVERY_S:
            self._draw()

    def _draw(self) -> None:
        self._shown_s = time.monotonic()
        bar = f'<progress value="{self._done}" max="{self._total}"></progress>'
        told = f"{escape(self._name)} {bar} {self._done}/{self._total}"
        self._show(f"{told}{self._left()}")

    def _left(self) -> str:
        """How long the phase will still take, once a step has shown how long one is."""
        if not self._done:
            return ""
        passed_s = self._shown_s - self._began_s
        left_s = round(passed_s * (self._total - self._done) / self._done)
        return f", {left_s // 60}:{left_s % 60:02d} left"


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
def progress_on(stream: TextIO, opening: str = "") -> Iterator[Progress]:
    """A `Progress` for the block: a bar if `stream` is a terminal, silent if not.

    The line `opening`, if there is one, is written to either as the first phase begins:
    work that is refused before that is not announced.
    """
    if not opening:
        with _bar_on(stream) if stream.isatty() else nullcontext() as bar:
            yield RichProgress(bar) if bar is not None else SilentProgress()
        return
    if not stream.isatty():
        yield _Opened(SilentProgress(), lambda: _write_line(stream, opening))
        return
    with _bar_on(stream) as bar:
        yield _Opened(RichProgress(bar), lambda: bar.console.print(Text(opening)))


@contextmanager
def progress_here() -> Iterator[Progress]:
    """A `Progress` for the block: a bar in a notebook or on a terminal, else silent.

    Nothing is left of the bar behind the block.
    """
    if Console().is_jupyter:
        with _in_notebook() as show:
            yield NotebookProgress(show)
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bar_on(sys.stderr) as bar:
            yield RichProgress(bar)
    else:
        yield SilentProgress()


def _bar_on(stream: TextIO) -> bars.Progress:
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    return bars.Progress(*columns, console=Console(file=stream), transient=True)


@contextmanager
def _in_notebook() -> Iterator[Callable[[str], object]]:
    """How to show HTML in the present cell, in place of what was shown before."""
    from IPython import display  # noqa: PLC0415 (a notebook has it)

    place: Any = display.display(display.HTML(""), display_id=True)
    try:
        yield lambda html: place.update(display.HTML(html))
    finally:
        place.update(display.HTML(""))


def _write_line(stream: TextIO, line: str) -> None:
    with suppress(OSError):  # a line that cannot be shown stops no measurement
        stream.write(f"{line}\n")
        stream.flush()
