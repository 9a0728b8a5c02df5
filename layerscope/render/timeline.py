"""The median pass of every arm as bars in a terminal, a row a region, on one axis.

Every row says in words what it is, and every kind of bar has a sign of its own, so
nothing hangs on colour. What is too short for a sign is counted and told.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from layerscope.regions import Region
from layerscope.render.plain import plain
from layerscope.report import Cell
from layerscope.report.median_passes import MedianPass, Row, Stretch
from layerscope.report.region_names import region_name
from layerscope.units import (
    TimeScale,
    format_ns,
    format_number,
    format_things,
    time_scale,
)

_INDENT: Final = "  "
_LABEL: Final = 19
"""Characters of a row's name; a longer one goes on below."""

_FEWEST: Final = 16
"""Cells of a bar, however narrow the terminal."""

_TICK: Final = 9
"""Cells between two ticks of the axis, at least."""

_GAPPY: Final = 10
"""Gaps are shown beside kernels where they take this part of a cell: a tenth."""

_STYLES: Final[Mapping[str, str]] = {
    Region.ATTENTION.value: "blue",
    Region.O_PROJ_ALL_REDUCE.value: "cyan",
    Region.MOE.value: "yellow",
    Region.MLP.value: "yellow",
    Region.MHC.value: "magenta",
    Region.DRAFT.value: "green",
}
_KINDS: Final = {"kernel": "kernel", "hidden": "hidden part", "gap": "gap"}


@dataclass(frozen=True, slots=True)
class Signs:
    """What stands for what in a cell."""

    kernel: str
    thin: str
    """A kernel, where less than half of the cell is taken."""

    mixed: str
    """Kernels and the gaps between them, where gaps take a tenth or more."""

    hidden: str
    gap: str
    line: str
    tick: str


DRAWN: Final = Signs(
    kernel="█", thin="▌", mixed="▓", hidden="░", gap="·", line="─", tick="┬"
)
PLAIN: Final = Signs(
    kernel="#", thin="|", mixed="=", hidden="-", gap=".", line="-", tick="+"
)
"""For what is not a terminal, or is one that lacks the others."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A span of time in cells; ns since the start of the pass."""

    start_ns: int
    end_ns: int
    cells: int

    def edge(self, cell: int) -> int:
        """Where a cell begins, which is where the one before it ends."""
        return self.start_ns + (self.end_ns - self.start_ns) * cell // self.cells

    @property
    def cell_ns(self) -> float:
        """How long a cell is."""
        return (self.end_ns - self.start_ns) / self.cells


@dataclass(frozen=True)
class Bar:
    """A row on an axis, cell by cell."""

    row: Row
    axis: Axis

    @cached_property
    def owners(self) -> list[Stretch | None]:
        """Of every cell the stretch that has most of it, the first of equal ones."""
        owners: list[Stretch | None] = []
        for cell in range(self.axis.cells):
            parts = [(self._part(cell, each), each) for each in self.row.stretches]
            most_ns, owner = max(parts, key=lambda part: part[0])
            owners.append(owner if most_ns > 0 else None)
        return owners

    @property
    def untold(self) -> Iterator[str]:
        """The kind of each stretch that has no cell."""
        for each in self.row.stretches:
            if not any(each is owner for owner in self.owners):
                yield each.kind

    def text(self, signs: Signs) -> str:
        """A sign a cell."""
        return "".join(
            " " if owner is None else self._sign(cell, owner, signs)
            for cell, owner in enumerate(self.owners)
        )

    def _sign(self, cell: int, owner: Stretch, signs: Signs) -> str:
        if owner.kind != "kernel":
            return {"hidden": signs.hidden, "gap": signs.gap}[owner.kind]
        whole_ns = self.axis.edge(cell + 1) - self.axis.edge(cell)
        if 2 * self._taken(cell, "kernel") < whole_ns:
            return signs.thin
        has_gaps = _GAPPY * self._taken(cell, "gap") >= whole_ns
        return signs.mixed if has_gaps else signs.kernel

    def _taken(self, cell: int, kind: str) -> int:
        """How much of a cell all stretches of a kind have."""
        found = (each for each in self.row.stretches if each.kind == kind)
        return sum(max(0, self._part(cell, each)) for each in found)

    def _part(self, cell: int, stretch: Stretch) -> int:
        """How much of a cell a stretch has; not positive where it is elsewhere."""
        begin_ns, end_ns = self.axis.edge(cell), self.axis.edge(cell + 1)
        return min(stretch.end_ns, end_ns) - max(stretch.start_ns, begin_ns)


def print_timeline(
    passes: Sequence[MedianPass], title: str, console: Console | None = None
) -> None:
    """Write `passes` to `console`, standard output by default, in one go.

    Args:
        passes: at least one.
        title: what they are of.
        console: where to.

    Raises:
        OSError: it could not be written.
    """
    console = console or Console()
    has_signs = console.is_terminal and not console.options.ascii_only
    lines = _lines(passes, title, console.width, DRAWN if has_signs else PLAIN)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    text = captured.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)
    console.file.flush()


def _lines(
    passes: Sequence[MedianPass], title: str, width: int, signs: Signs
) -> Iterator[Text | Grid]:
    scale = time_scale(each.increment_ns for each in passes)
    heads = [column.title for column in passes[0].table.columns[1:]]
    times = (len(scale.format(each.increment_ns)) for each in passes)
    number = max(*times, *map(len, heads))
    taken = _LABEL + 1 + len(heads) * (number + 1)
    axis = _axis(passes, max(_FEWEST, width - taken))
    yield Text(
        f"{plain(title)}: median pass of each arm, in {scale.unit}", style="bold"
    )
    yield _grid(axis, number, _head(axis, scale, signs, heads))
    for each in passes:
        bars = [Bar(row, axis) for row in each.rows]
        yield Text(plain(each.title), style="bold")
        yield _grid(axis, number, _rows(each, bars, scale, signs))
        for lacking in _untold(bars):
            yield Text(f"too short to be seen here: {lacking}", style="dim")
        yield Text()
    half = f"in less than half of {format_ns(axis.cell_ns)}"
    yield Text(f"{signs.kernel} kernel, {signs.thin} {half}")
    yield Text(f"{signs.mixed} kernels, with gaps in at least a tenth of that")
    yield Text(f"{signs.hidden} hidden behind others, {signs.gap} gap before a kernel")


def _axis(passes: Sequence[MedianPass], cells: int) -> Axis:
    """From the first start, or that of the pass, to the last end; the same for all."""
    found = [each for one in passes for row in one.rows for each in row.stretches]
    ends = [each.end_ns for each in found] + [one.increment_ns for one in passes]
    return Axis(min(0, *(each.start_ns for each in found)), max(ends), cells)


def _grid(axis: Axis, number: int, rows: Iterable[Sequence[Text | str]]) -> Grid:
    grid = Grid.grid()
    grid.add_column(width=_LABEL, overflow="fold")
    grid.add_column(width=1 + axis.cells, no_wrap=True)
    for row in rows:
        while len(grid.columns) < len(row):
            grid.add_column(width=number + 1, justify="right", no_wrap=True)
        grid.add_row(*row)
    return grid


def _head(
    axis: Axis, scale: TimeScale, signs: Signs, heads: Sequence[str]
) -> Iterator[Sequence[str]]:
    """Times above their ticks, and the titles of the numbers."""
    step_ns = _step(axis.cell_ns * _TICK)
    decimals = max(0, -math.floor(math.log10(step_ns / scale.ns)))
    labels, line = " " * axis.cells, [signs.line] * axis.cells
    for time_ns in range(-(-axis.start_ns // step_ns) * step_ns, axis.end_ns, step_ns):
        cell = next(i for i in range(axis.cells) if time_ns < axis.edge(i + 1))
        line[cell] = signs.tick
        label = format_number(time_ns / scale.ns, decimals)
        if cell + len(label) <= axis.cells:
            labels = labels[:cell] + label + labels[cell + len(label) :]
    yield "", f" {labels}", *heads
    yield "", f" {''.join(line)}"


def _step(least_ns: float) -> int:
    """The smallest of 1, 2, 5, 10, 20 ... ns that is as long as `least_ns`."""
    power: int = 10 ** max(0, math.floor(math.log10(max(least_ns, 1))))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= least_ns)


def _rows(
    one: MedianPass, bars: Sequence[Bar], scale: TimeScale, signs: Signs
) -> Iterator[Sequence[Text | str]]:
    """Every bar; beside the first of a region what it takes, and then the total."""
    told = {region: numbers for region, *numbers in one.table.rows}
    before = ""
    for bar in bars:
        region = bar.row.region
        is_first = region != before
        label = plain(region_name(region)) if is_first else f"{_INDENT}beside it"
        numbers = told[region] if is_first else ()
        text = Text(f" {bar.text(signs)}", style=_STYLES.get(region, ""))
        yield Text(label), text, *_numbers(numbers, scale)
        before = region
    yield Text("total", style="bold"), "", *_numbers(told["total"], scale)


def _numbers(times: Iterable[Cell], scale: TimeScale) -> Iterator[str]:
    return (scale.format(each) for each in times if isinstance(each, int))


def _untold(bars: Iterable[Bar]) -> Iterator[str]:
    """How many stretches have no cell of their own; nothing where all have one."""
    counts = Counter(kind for bar in bars for kind in bar.untold)
    if counts:
        things = [
            format_things(counts[kind], thing)
            for kind, thing in _KINDS.items()
            if counts[kind]
        ]
        yield ", ".join(things)
