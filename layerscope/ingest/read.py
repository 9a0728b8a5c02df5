"""Traces from files and folders, whatever tool wrote them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from layerscope.errors import InputError
from layerscope.ingest import (
    kineto,
    nsys,
    perfetto_trace,
    rocpd,
    rocprof_csv,
    rocprof_json,
)
from layerscope.ingest.cache import SMALLEST_BYTES, TraceCache, user_cache
from layerscope.ingest.content import Content, contents_of
from layerscope.ingest.formats import Format
from layerscope.ingest.rocprof_csv_set import Part, part_of, prefix_of
from layerscope.ingest.sniff import sniff
from layerscope.progress import Progress, SilentProgress
from layerscope.trace import Trace, TraceLog, TraceNote

_READERS: Final[dict[Format, Callable[[Content, TraceLog, Progress], Trace]]] = {
    Format.KINETO: kineto.read,
    Format.PROTON: kineto.read,
    Format.NSYS: nsys.read,
    Format.ROCPROF_CSV: rocprof_csv.read,
    Format.ROCPROF_JSON: rocprof_json.read,
    Format.ROCPD: rocpd.read,
    Format.PERFETTO: perfetto_trace.read,
}

_SAME_RANK: Final = "traces beside this one that say they are of the same rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How traces are read."""

    cache: bool = True
    """Whether what was read before may come from the user's cache folder."""

    progress: Progress = field(default_factory=SilentProgress)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read on its own."""

    name: str
    """Of the file, and within an archive the member."""

    reason: str
    """Completes a sentence that begins with the name: "is a Git LFS pointer; ..."."""


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Reading:
    """All traces that were asked for."""

    traces: tuple[Trace, ...]
    """At least one; those of a folder or archive by rank, then by name."""

    skipped: tuple[Skipped, ...] = ()
    """Files of folders and archives that gave no trace."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A content that will be read."""

    content: Content
    format: Format


def read_trace(path: str | Path, options: ReadOptions | None = None) -> Trace:
    """The trace in the file `path`, or the only one in the folder or archive.

    Raises:
        InputError: it cannot be read, or holds several traces.
    """
    reading = read_traces([path], options=options)
    if len(reading.traces) > 1:
        msg = (
            f"{path} holds {len(reading.traces)} traces, such as "
            f"{reading.traces[0].source.path}; give one of them"
        )
        raise InputError(msg)
    return reading.traces[0]


def read_traces(
    paths: Sequence[str | Path], *, options: ReadOptions | None = None
) -> Reading:
    """All traces in `paths`, in their order.

    A path is a file, an archive of files, or a folder. Of a folder all visible files
    are tried, and those in folders directly within it; those that are no traces are
    skipped. Files of one rocprofv3 run that belong together become one trace.

    Args:
        paths: at least one; what is named must be readable.
        options: see `ReadOptions`.

    Raises:
        InputError: a file that was named cannot be read, a folder or an archive holds
            no trace, or no path was given.
    """
    options = options or ReadOptions()
    cache = user_cache() if options.cache else None
    if not paths:
        msg = "no trace was given; name a file or a folder of them"
        raise InputError(msg)
    traces: list[Trace] = []
    skipped: list[Skipped] = []
    for path in dict.fromkeys(Path(each) for each in paths):
        reading = _read_all(path, cache, options.progress)
        traces += reading.traces
        skipped += reading.skipped
    return Reading(tuple(traces), tuple(skipped))


def _read_all(path: Path, cache: TraceCache | None, progress: Progress) -> Reading:
    """What one path holds."""
    if not path.is_dir():
        contents = contents_of(path)
        if len(contents) == 1:
            only = _Found(contents[0], sniff(contents[0]))
            return Reading((_read(only, cache, progress),))
        skipped: list[Skipped] = []
    else:
        _refuse_runs(path)
        contents, skipped = _contents_within(path)
    found, others = _grouped(_sniffed(contents, skipped))
    skipped += others
    traces = []
    for each in found:
        try:
            traces.append(_read(each, cache, progress))
        except InputError as error:
            skipped.append(_skipped(each.content.name, error))
    skipped.sort(key=lambda each: each.name)
    if not traces:
        raise InputError(_nothing_in(path, skipped))
    return Reading(tuple(_by_rank(traces)), tuple(skipped))


def _refuse_runs(folder: Path) -> None:
    if (folder / "run.json").is_file():
        msg = f"{folder} is a run of layerscope; `layerscope show` takes it"
        raise InputError(msg)


def _contents_within(folder: Path) -> tuple[list[Content], list[Skipped]]:
    contents: list[Content] = []
    skipped = []
    for path in _files_within(folder):
        try:
            contents += contents_of(path)
        except InputError as error:
            skipped.append(_skipped(str(path), error))
    return contents, skipped


def _files_within(folder: Path, *, levels: int = 1) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        msg = f"cannot read {folder}: {error.strerror or error}"
        raise InputError(msg) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and levels:
            yield from _files_within(entry, levels=levels - 1)


def _sniffed(contents: Iterable[Content], skipped: list[Skipped]) -> list[_Found]:
    """The traces among `contents`; the others are added to `skipped`."""
    found = []
    for content in contents:
        try:
            found.append(_Found(content, sniff(content)))
        except InputError as error:
            skipped.append(_skipped(content.name, error))
    return found


def _grouped(found: list[_Found]) -> tuple[list[_Found], list[Skipped]]:
    """`found` with one of the CSV files of each process; its reader adds the others."""
    groups: dict[tuple[str, str], list[_Found]] = {}
    for each in found:
        groups.setdefault(_group(each), []).append(each)
    kept, skipped = [], []
    for group in groups.values():
        first = next(
            (each for each in group if part_of(each.content) is Part.KERNELS), group[0]
        )
        kept.append(first)
        skipped += [
            Skipped(each.content.name, f"is read with {first.content.name}")
            for each in group
            if each is not first
        ]
    return kept, skipped


def _group(found: _Found) -> tuple[str, str]:
    """Equal for files that one reader takes together."""
    place = PurePosixPath(found.content.name)
    prefix = prefix_of(place.name) if found.format is Format.ROCPROF_CSV else None
    return (found.content.name, "") if prefix is None else (str(place.parent), prefix)


def _read(found: _Found, cache: TraceCache | None, progress: Progress) -> Trace:
    content = found.content
    # What one CSV file gives depends on those beside it, so its bytes are no key.
    is_kept = content.bytes >= SMALLEST_BYTES and found.format is not Format.ROCPROF_CSV
    if cache is None or not is_kept:
        return _parsed(found, progress)
    try:
        key = cache.key(content, progress)
    except OSError as error:
        msg = f"cannot read {content.name}: {error.strerror or error}"
        raise InputError(msg) from error
    kept = cache.load(key, content)
    if kept is None:
        kept = _parsed(found, progress)
        cache.store(key, kept)
    return kept


def _parsed(found: _Found, progress: Progress) -> Trace:
    content = found.content
    progress.phase(f"reading {content.path.name}", content.bytes)
    trace = _READERS[found.format](content, TraceLog(), progress)
    if trace.kernels.is_empty():
        why = trace.notes[0].what if trace.notes else "there are no kernels in it"
        if "; record" not in why:  # a note may say itself what to do
            why += "; record the activity of the GPU, and give that"
        msg = f"{content.name} ({found.format}) cannot be analysed: {why}"
        raise InputError(msg)
    return trace


def _skipped(name: str, error: InputError) -> Skipped:
    return Skipped(name, str(error).removeprefix(f"{name} "))


def _nothing_in(path: Path, skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return f"{path} holds no files; give a trace, or a folder of them"
    first = skipped[0]
    return (
        f"{path} holds no trace among {len(skipped)} files, the first of which: "
        f"{first.name} {first.reason}"
    )


def _by_rank(traces: Iterable[Trace]) -> list[Trace]:
    """Sorted, with a note on each where several say that they are of one rank."""
    order = sorted(
        traces,
        key=lambda each: (each.rank is None, each.rank or 0, each.source.path),
    )
    times = Counter(each.rank for each in order if each.rank is not None)
    return [
        replace(each, notes=(*each.notes, _same_rank(times[each.rank] - 1)))
        if each.rank is not None and times[each.rank] > 1
        else each
        for each in order
    ]


def _same_rank(others: int) -> TraceNote:
    return TraceNote(kind="doubted", what=_SAME_RANK, count=others)
