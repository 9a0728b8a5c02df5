"""A `Run`: one study on disk, as it grows and after it has ended.

A run is a folder of files: ``run.json`` (`RunHeader`), ``samples.parquet``
(`schema.SAMPLES`), ``kernels.parquet`` (`schema.KERNELS`), ``edges.parquet``
(`schema.EDGES`; older runs have none) and, where blocks were stamped,
``stamps.parquet`` (`schema.STAMPS`). All are written under temporary names and moved
into place together, ``run.json`` last. So a folder with a ``run.json`` is readable at
any moment, even after its writer was killed; it then says that it is partial. The run
of a draft is a folder of the same kind within it.
"""

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

import msgspec
import polars as pl

from layerscope.atomic import replace_files
from layerscope.errors import InputError, RecordError
from layerscope.parquet import as_parquet, read_frame, read_if_there
from layerscope.run_header import RunHeader, read_header
from layerscope.schema import EDGES, KERNELS, SAMPLES, STAMPS, conform, empty

HEADER_FILE: Final = "run.json"
SAMPLES_FILE: Final = "samples.parquet"
KERNELS_FILE: Final = "kernels.parquet"
EDGES_FILE: Final = "edges.parquet"
STAMPS_FILE: Final = "stamps.parquet"
FILES: Final = (HEADER_FILE, SAMPLES_FILE, KERNELS_FILE, EDGES_FILE)
"""Of every run."""

DRAFT_FOLDER: Final = "draft"
"""Folder within a run that holds the run of its draft."""

_ORDER: Final = ("arm", "experiment", "capture", "replay", "node")


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A study and what was measured; the same whether just recorded or loaded."""

    header: RunHeader
    samples: pl.DataFrame
    """`schema.SAMPLES`."""

    kernels: pl.DataFrame
    """`schema.KERNELS`."""

    path: Path

    draft: "Run | None" = None
    """The run of the study's draft, where there is one."""

    edges: pl.DataFrame = field(default_factory=lambda: empty(EDGES))
    """`schema.EDGES`; none where graphs are not looked into, as on a CPU."""

    stamps: pl.DataFrame = field(default_factory=lambda: empty(STAMPS))
    """`schema.STAMPS`; none where nobody asked for them."""

    def __repr__(self) -> str:
        """Where it is, and how much there is of it."""
        rows = f"{self.samples.height} samples, {self.kernels.height} kernels"
        draft = "" if self.draft is None else ", with its draft"
        return f"<Run {self.path}: {self.header.status}, {rows}{draft}>"


def new_run_folder(name: str) -> Path:
    """A folder for a run that nobody named: by the present local time and `name`."""
    time = datetime.now(UTC).astimezone().strftime("%Y%m%d-%H%M%S")
    return Path("layerscope-runs") / f"{time}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"


def load(path: Path | str) -> Run:
    """Read the run in the folder `path`.

    Raises:
        InputError: there is no such folder, or it is not a run.
        RecordError: a file is damaged, misses columns, or is of a newer format.
    """
    folder = Path(path)
    header_path = folder / HEADER_FILE
    if not header_path.is_file():
        raise InputError(_not_a_run(folder))
    header = read_header(header_path)
    return Run(
        header=header,
        samples=read_frame(folder / SAMPLES_FILE, SAMPLES),
        kernels=read_frame(folder / KERNELS_FILE, KERNELS),
        path=folder,
        draft=_load_draft(folder / DRAFT_FOLDER, header),
        edges=read_if_there(folder / EDGES_FILE, EDGES),
        stamps=read_if_there(folder / STAMPS_FILE, STAMPS),
    )


def _load_draft(folder: Path, header: RunHeader) -> Run | None:
    """The run of the draft; one that cannot be read is a warning of its layer's."""
    if not (folder / HEADER_FILE).is_file():
        return None
    try:
        return load(folder)
    except RecordError as error:
        header.warnings.append(f"the draft is left out: {error}")
        return None


def holds_no_trace(path: Path) -> bool:
    """Whether only `load` can say what `path` is: a run, runs, or nothing at all."""
    if path.is_dir():
        inside = path.glob(f"*/{HEADER_FILE}")
        return (path / HEADER_FILE).is_file() or any(inside)
    return not path.exists() or path.name == HEADER_FILE


class RunWriter:
    """Grows a run on disk; what the last `checkpoint` wrote survives any crash."""

    def __init__(self, path: Path, header: RunHeader) -> None:
        """Create the folder `path`, which must be new or empty.

        Args:
            path: the folder of the run.
            header: written as it is at each checkpoint; the caller keeps filling it.

        Raises:
            InputError: the folder holds something already, or cannot be created.
        """
        self.path = path
        self.header = header
        self._samples: list[pl.DataFrame] = []
        self._kernels: list[pl.DataFrame] = []
        self._edges = empty(EDGES)
        self._stamps = empty(STAMPS)
        self._added = self._kept = "nothing could be kept"
        try:
            path.mkdir(parents=True, exist_ok=True)
            is_used = any(path.iterdir())
        except OSError as error:
            msg = f"cannot create {path}: {error.strerror}; choose another --output"
            raise InputError(msg) from error
        if is_used:
            msg = f"{path} already holds files; choose another --output"
            raise InputError(msg)

    def add_samples(self, frame: pl.DataFrame) -> None:
        """Append rows of `schema.SAMPLES`.

        Raises:
            RecordError: the frame does not conform.
        """
        self._add(self._samples, conform(frame, SAMPLES, what="samples"))

    def add_kernels(self, frame: pl.DataFrame) -> None:
        """Append rows of `schema.KERNELS`.

        Raises:
            RecordError: the frame does not conform.
        """
        self._add(self._kernels, conform(frame, KERNELS, what="kernels"))

    def set_edges(self, frame: pl.DataFrame) -> None:
        """Let these be the run's rows of `schema.EDGES`.

        Raises:
            RecordError: the frame does not conform.
        """
        self._edges = conform(frame, EDGES, what="edges")

    def set_stamps(self, frame: pl.DataFrame) -> None:
        """Let these be the run's rows of `schema.STAMPS`.

        Raises:
            RecordError: the frame does not conform.
        """
        self._stamps = conform(frame, STAMPS, what="stamps")

    def forget(self, arms: Collection[str]) -> None:
        """Take all rows of `arms` out again, their edges aside."""
        others = ~pl.col("arm").is_in(arms)
        for frames in (self._samples, self._kernels):
            frames[:] = [frame.filter(others) for frame in frames]
        self._stamps = self._stamps.filter(others)

    @property
    def kernels(self) -> pl.DataFrame:
        """All that was added so far, `schema.KERNELS`."""
        return pl.concat([empty(KERNELS), *self._kernels])

    def checkpoint(self) -> None:
        """Write all that was added so far, and the header, in one move.

        Raises:
            RecordError: the disk is full or refuses; the checkpoint before is intact.
        """
        header = msgspec.json.encode(self.header)
        # One that was written would keep rows that were taken out since.
        has_stamps = self._stamps.height or (self.path / STAMPS_FILE).exists()
        stamps = {STAMPS_FILE: self._stamps} if has_stamps else {}
        try:
            replace_files(
                self.path,
                {
                    **{name: as_parquet(frame) for name, frame in stamps.items()},
                    SAMPLES_FILE: as_parquet(
                        pl.concat([empty(SAMPLES), *self._samples])
                    ),
                    KERNELS_FILE: as_parquet(
                        self.kernels.sort(_ORDER, maintain_order=True)
                    ),
                    EDGES_FILE: as_parquet(self._edges),
                    HEADER_FILE: msgspec.json.format(header, indent=2),
                },
            )
        except OSError as error:
            raise RecordError(self._write_failure(error)) from error
        self._kept = self._added

    def finish(self, status: Literal["complete", "partial"], reason: str = "") -> Run:
        """Write the end state and return the run as it now is on disk.

        Args:
            status: "partial" where the study stopped before its plan was done.
            reason: why it stopped; shown by every report of a partial run.

        Raises:
            RecordError: as for `checkpoint`.
        """
        self.header.status = status
        self.header.status_reason = reason
        self.checkpoint()
        return load(self.path)

    def _add(self, frames: list[pl.DataFrame], frame: pl.DataFrame) -> None:
        frames.append(frame)
        if frame.height:
            capture, number = frame.select("capture", "round").row(-1)
            place = f"round {number} of capture {capture}"
            self._added = f"what was recorded up to {place} is kept there"

    def _write_failure(self, error: OSError) -> str:
        if error.errno != errno.ENOSPC:
            return f"cannot write {self.path} ({error.strerror}): {self._kept}"
        advice = "free some space and run again"
        return f"disk full while writing {self.path}: {self._kept}; {advice}"


def _not_a_run(folder: Path) -> str:
    """Why `folder` cannot be loaded, with the closest thing that can."""
    if folder.is_dir():
        inside = sorted(found.parent for found in folder.glob(f"*/{HEADER_FILE}"))
        hint = f"; did you mean {inside[-1]}?" if inside else ""
        return f"{folder} is not a run: it holds no {HEADER_FILE}{hint}"
    if folder.is_file():
        hint = f"; did you mean {folder.parent}?" if folder.name == HEADER_FILE else ""
        hint = hint or "; layerscope analyze reads traces of other tools"
        return f"{folder} is a file, and a run is a folder{hint}"
    siblings = [found.parent.name for found in folder.parent.glob(f"*/{HEADER_FILE}")]
    close = get_close_matches(folder.name, siblings, n=1)
    hint = f"; did you mean {folder.parent / close[0]}?" if close else ""
    return f"no run at {folder}{hint}"
