"""A report as data: what is said, in which tables, with raw numbers in every cell."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """What a column holds; fixes its unit and how renderers write it."""

    TEXT = "text"
    REGION = "region"
    TIME = "time"  # ns
    CHANGE = "change"  # ns, with its sign
    INTERVAL = "interval"  # `Interval`, ns
    TRAFFIC = "traffic"  # `Traffic`, bytes
    SIZE = "size"  # bytes
    COUNT = "count"
    RATIO = "ratio"

    @property
    def unit(self) -> str:
        """The unit of the raw numbers; empty where they have none."""
        times = dict.fromkeys((Kind.TIME, Kind.CHANGE, Kind.INTERVAL), "ns")
        sizes = dict.fromkeys((Kind.TRAFFIC, Kind.SIZE), "byte")
        return (times | sizes).get(self, "")


@dataclass(frozen=True, slots=True)
class Interval:
    """A time or a change of one, with its 95 % interval; ns."""

    value: float
    low: float
    high: float
    relative: float | None = None
    """A change as a fraction of what it is compared with; None for a plain time."""

    verdict: str = ""
    """What a change means: faster, slower, no difference, unknown."""

    reason: str = ""
    """Why there is no clear verdict; may be empty."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that were moved over bytes that had to be."""

    touched: int | None
    required: int
    ratio: float | None
    """Touched over required; None where either is unknown."""


Cell: TypeAlias = str | int | float | Interval | Traffic | None
"""None is shown as a dash: it was not measured, or does not add up."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: str
    """Stable name for programs, with its unit, such as ``share_mean_ns``."""

    title: str
    """What people read."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under titled columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    has_total: bool = False
    """Whether the last row adds up the others."""

    scale_ns: float | None = None
    """The time that fixes the unit, for tables that are read side by side; None for
    the largest of the table."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the header."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is told of a run, before anything is drawn."""

    title: str
    facts: tuple[Fact, ...]
    tables: tuple[Table, ...]
    headlines: tuple[Fact, ...] = field(default=())
    """What was found, arm by arm, for whoever reads nothing else."""

    differences: tuple[str, ...] = field(default=())
    """In what the runs that are compared differ and should not."""

    notes: tuple[str, ...] = field(default=())
    """What a reader must know to read the tables rightly."""

    warnings: tuple[str, ...] = field(default=())
    """What makes these figures less than they should be."""

    parts: tuple["Report", ...] = field(default=())
    """Reports of what was measured beside it, on the same machine."""
