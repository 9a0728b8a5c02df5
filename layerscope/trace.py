"""A `Trace`: what one file of another tool says of the work of GPUs, and of itself.

Readers make it; everything after knows no file format. A `Run` has passes, arms and a
plan, a trace has none of these: which layer a kernel belongs to has to be found out.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import polars as pl

from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES, conform

NoteKind: TypeAlias = Literal["repaired", "dropped", "doubted", "untrusted"]

NOTE_KINDS: Final[tuple[NoteKind, ...]] = (
    "untrusted",
    "doubted",
    "dropped",
    "repaired",
)
"""In the order in which reports say them."""


NoteAbout: TypeAlias = Literal[
    "", "kernels missing", "overlaps rewritten", "launches missing"
]
"""What figures a note takes away: wordings may change, verdicts go by this."""


class TraceNote(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a file that was not as it should be, and how often."""

    # "repaired": read, after a change that loses nothing. "dropped": not read.
    # "doubted": read, but the value is unlikely, or was cut. "untrusted": what the file
    # cannot tell, or tells wrongly, by its nature: said before any number.
    kind: NoteKind
    what: str  # "kernels of negative duration, taken as 0"
    count: int = 1  # how many; 0 where there is nothing to count
    # "kernels missing": nobody can tell when a device was idle. "overlaps rewritten":
    # nor which kernels overlap. "launches missing": of kernels; said once. Else "".
    about: NoteAbout = ""


class TraceLog:
    """Collects notes while a file is read; equal ones are counted together."""

    def __init__(self) -> None:
        """Nothing has been noted."""
        self._counts: Counter[tuple[NoteKind, str, NoteAbout]] = Counter()

    def add(
        self, kind: NoteKind, what: str, count: int = 1, *, about: NoteAbout = ""
    ) -> None:
        """Note `what`, which happened `count` times; 0 times is no note.

        A note of kind "untrusted" is about the whole file and may have no count: give
        it once, with the default. `about` is as in `TraceNote`.
        """
        if count:
            self._counts[kind, what, about] += count

    def notes(self) -> tuple[TraceNote, ...]:
        """All that was noted: the gravest kind first, then as first mentioned."""
        return tuple(
            TraceNote(kind=kind, what=what, count=count, about=about)
            for wanted in NOTE_KINDS
            for (kind, what, about), count in self._counts.items()
            if kind == wanted
        )


class TraceDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as a file describes it; what it does not tell is empty or 0."""

    device: int  # as `TRACE_KERNELS.device` numbers it
    name: str = ""
    architecture: str = ""  # "sm_90", "gfx942"
    processors: int = 0  # SMs or CUs
    memory_bytes: int = 0


class TraceSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trace came from."""

    path: str
    format: str  # "Kineto JSON", "Nsight Systems SQLite", "rocprofv3 CSV", ...
    written_by: str = ""  # tool and version, as far as the file tells
    bytes: int = 0  # of the file, as it lies on disk


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Trace:
    """Work of GPUs, the calls that launched it, and named ranges, of one file."""

    source: TraceSource

    kernels: pl.DataFrame
    """`schema.TRACE_KERNELS`, sorted by start, end and the order in the file."""

    calls: pl.DataFrame
    """`schema.TRACE_CALLS`, sorted by start."""

    ranges: pl.DataFrame
    """`schema.TRACE_RANGES`, sorted by start; of equal starts the longer first."""

    devices: tuple[TraceDevice, ...] = ()

    rank: int | None = None
    """Of the process within its job, where the file tells."""

    ranks: int | None = None
    """Processes of the job, where the file tells."""

    origin_ns: int | None = None
    """Unix time of this trace's time 0, where the file tells."""

    notes: tuple[TraceNote, ...] = ()
    """What was repaired, dropped or doubted; every report prints them."""

    def __post_init__(self) -> None:
        """Check the frames once; raises `RecordError` where one does not conform."""
        for name, schema in (
            ("kernels", TRACE_KERNELS),
            ("calls", TRACE_CALLS),
            ("ranges", TRACE_RANGES),
        ):
            frame = conform(getattr(self, name), schema, what=name)
            object.__setattr__(self, name, frame)

    @property
    def label(self) -> str:
        """What reports call it: the name of its file."""
        return Path(self.source.path).name
