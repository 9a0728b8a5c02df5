"""Which events of a trace are read, and as what."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from layerscope.ingest.assembling import Rows
from layerscope.ingest.columns import Names
from layerscope.ingest.kineto.events import Event
from layerscope.ingest.kineto.tables import Table
from layerscope.ingest.kineto.values import integers, nanoseconds, strings, triples
from layerscope.schema import TRACE_KINDS
from layerscope.trace import TraceLog
from layerscope.trace_names import GRAPH_LAUNCH

_ON_DEVICE: Final = "gpu_user_annotation"

KINDS: Final = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    # until 2021
    "Kernel": "kernel",
    "Memcpy": "copy",
    "Memset": "fill",
}
"""Categories of work on a device; and its kind, of `schema.TRACE_KINDS`."""

CALLS: Final = frozenset(
    {
        *("cuda_runtime", "cuda_driver", "Runtime"),  # also those of HIP
        *("xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"),
    }
)
"""Categories of calls that launch such work."""

ANNOTATIONS: Final = frozenset({"user_annotation", _ON_DEVICE})
"""Categories of ranges that the user's program named."""

OPERATORS: Final = "Operator"
"""Category of operators until 2021, when the steps were among them."""

FUNCTIONS: Final = "python_function"
"""Category of Python's stack, which has the modules."""

_UNREAD: Final = ("cpu_op", "ac2g", "async_cpu_to_gpu", "async", "fwdbwd", None)
"""Categories of operators and arrows, and of events that have none; very many."""

STEP: Final = r"^(ProfilerStep#[0-9]+$|execute_.*(context|generation)_|step\[)"
"""Names of ranges that are steps: of PyTorch's profiler, of vLLM, of SGLang."""

_FIRST_MODULE: Final = "nn.Module: "
_FIRST_STEP: Final = "ProfilerStep#"
_MOST_CATEGORIES: Final = 1_000
_LONGEST_PROCESS: Final = 200
_TIMES: Final = ("ts", "dur")
_NUMBERS: Final = (
    *("device", "context", "stream", "correlation", "graph", "graph_node"),
    *("registers", "shared_bytes"),
)
_WORK_ARGS: Final = (*_NUMBERS, "grid", "block", "collective", "group")
_LAUNCHES: Final = "Launch|Memcpy|Memset"
_LIMIT_NS: Final = (1 << 62) - 1  # two of them add up to what a column can hold


class Selection:
    """The events of a trace that are read."""

    def __init__(self, log: TraceLog) -> None:
        """None as yet; `log` is told of what cannot be read."""
        self._log = log
        self._names = Names(log)
        place = ("pid", "tid")
        self._work = Table((*_TIMES, *place), _WORK_ARGS, self._names)
        self._calls = Table((*_TIMES, "tid"), ("correlation",), self._names)
        self._ranges = Table((*_TIMES, *place), (), self._names)
        self._frames: dict[str, list[pl.DataFrame]] = {
            name: [] for name in ("work", "calls", "ranges")
        }
        self.others: dict[str, bytes] = {}
        """Categories of events that are not read, the first 1,000, and the process of
        their first event."""

    def add(self, events: Iterable[Event]) -> None:
        """Take what is needed of some events."""
        work: list[Event] = []
        calls: list[Event] = []
        ranges: list[Event] = []
        functions: list[Event] = []
        operators: list[Event] = []
        unread: list[Event] = []
        lists: dict[str | None, list[Event]] = {
            **dict.fromkeys(_UNREAD, unread),
            **dict.fromkeys(KINDS, work),
            **dict.fromkeys(CALLS, calls),
            **dict.fromkeys(ANNOTATIONS, ranges),
            OPERATORS: operators,
            FUNCTIONS: functions,
        }
        get = lists.get
        for event in events:
            found = get(event.cat)
            if found is not None:
                found.append(event)
            elif event.cat not in self.others and event.cat:
                self._note_other(event.cat, event)
        ranges += _beginning(functions, _FIRST_MODULE)
        ranges += _beginning(operators, _FIRST_STEP)
        complete = _complete(work)
        what = "events of a GPU without a duration of their own"
        self._log.add("dropped", what, len(work) - len(complete))
        self._work.add(complete)
        self._calls.add(_complete(calls))
        self._ranges.add(_complete(ranges))
        if any(table.is_full for table in (self._work, self._calls, self._ranges)):
            self._flush()

    def _note_other(self, category: str, event: Event) -> None:
        if len(self.others) < _MOST_CATEGORIES:
            self.others[category] = bytes(event.pid)[:_LONGEST_PROCESS]

    def rows(self) -> Rows:
        """All that was taken; of the calls, those that launched some of the work.

        Also launches of whole graphs, which tell that work was lost where they have
        none.

        It is held no longer: this can be had once.
        """
        self._flush()
        work, calls, ranges = (
            pl.concat(self._frames.pop(name)) for name in tuple(self._frames)
        )
        linked = work["correlation"].drop_nulls().unique()
        graphs = self._names.matching(GRAPH_LAUNCH)
        calls = calls.filter(
            pl.col("correlation").is_in(linked.implode())
            | (pl.col("correlation").is_not_null() & pl.col("name").is_in(graphs))
        )
        calls = calls.with_columns(self._names.texts(calls["name"]))
        ranges = ranges.with_columns(self._names.texts(ranges["name"]))
        return Rows(
            kernels=work.with_columns(self._names.kernels(work["name"])),
            calls=_one_each(calls, self._log),
            ranges=ranges.with_columns(_range_kind()),
        )

    def _flush(self) -> None:
        """Turn the texts that are held into columns."""
        for name, table, columns_of in (
            ("work", self._work, _work_columns),
            ("calls", self._calls, _call_columns),
            ("ranges", self._ranges, _range_columns),
        ):
            frame = table.taken()
            if frame.height or not self._frames[name]:
                self._frames[name].append(columns_of(frame, self._log))


def _one_each(calls: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """One call a correlation: of several, the first that can launch something."""
    if not calls["correlation"].is_duplicated().any():
        return calls
    distinct = calls.unique(maintain_order=True)
    is_launch = pl.col("name").str.contains(_LAUNCHES)
    kept = distinct.sort(~is_launch, maintain_order=True).unique(
        "correlation", keep="first", maintain_order=True
    )
    what = "calls that share the number by which work is linked with another"
    log.add("doubted", what, distinct.height - kept.height)
    log.add("dropped", "calls that are there twice", calls.height - distinct.height)
    return kept


def _complete(events: list[Event]) -> list[Event]:
    """Those that have a duration; without a phase it is what they must be."""
    return [event for event in events if event.ph == "X" or event.ph is None]


def _beginning(events: list[Event], start: str) -> list[Event]:
    return [event for event in events if event.name and event.name.startswith(start)]


def _times(frame: pl.DataFrame) -> list[pl.Series]:
    """Columns ``start_ns`` and ``end_ns``."""
    start = nanoseconds(frame["ts"]).clip(-_LIMIT_NS, _LIMIT_NS)
    duration = nanoseconds(frame["dur"]).clip(-_LIMIT_NS, _LIMIT_NS)
    return [start.alias("start_ns"), (start + duration).alias("end_ns")]


def _work_columns(frame: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """Columns of `schema.TRACE_KERNELS`, names as numbers."""
    kind = frame["category"].replace_strict(KINDS, return_dtype=pl.Enum(TRACE_KINDS))
    numbers = {name: integers(frame[name], log) for name in _NUMBERS}
    for name, row in (("device", "pid"), ("stream", "tid")):
        if numbers[name].null_count():
            own = integers(frame[row], log)
            numbers[name] = numbers[name].zip_with(numbers[name].is_not_null(), own)
    sizes = [
        column.alias(f"{name}_{axis}")
        for name in ("grid", "block")
        for axis, column in zip("xyz", triples(frame[name]), strict=True)
    ]
    columns = pl.DataFrame(
        [
            frame["name"],
            kind.alias("kind"),
            *_times(frame),
            *(column.alias(name) for name, column in numbers.items()),
            *sizes,
            *(strings(frame[name]).alias(name) for name in ("collective", "group")),
        ]
    )
    # 0 says that it was not launched by a graph.
    is_of_graph = (pl.col("graph") != 0).fill_null(value=True) & (
        pl.col("graph_node") != 0
    )
    return columns.with_columns(
        pl.when(is_of_graph).then(pl.col("graph", "graph_node"))
    )


def _call_columns(frame: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """Columns of `schema.TRACE_CALLS`, names as numbers."""
    return pl.DataFrame(
        [
            frame["name"],
            integers(frame["tid"], log).alias("thread"),
            *_times(frame),
            integers(frame["correlation"], log).alias("correlation"),
        ]
    )


def _range_columns(frame: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """Columns of `schema.TRACE_RANGES`, names as numbers."""
    place = pl.DataFrame(
        {
            "is_on_device": frame["category"] == _ON_DEVICE,
            "row": integers(frame["tid"], log),
            "device": integers(frame["pid"], log),
        }
    )
    on_device = pl.when("is_on_device")
    return pl.DataFrame(
        [frame["name"], frame["category"], *_times(frame)]
    ).with_columns(
        place.select(
            thread=pl.when(~pl.col("is_on_device")).then("row"),
            device=on_device.then("device"),
            stream=on_device.then("row"),
        )
    )


def _range_kind() -> pl.Expr:
    """Which of `schema.TRACE_RANGE_KINDS` a range is."""
    return (
        pl.when(pl.col("category") == FUNCTIONS)
        .then(pl.lit("module"))
        .when(pl.col("name").str.contains(STEP))
        .then(pl.lit("step"))
        .otherwise(pl.lit("annotation"))
        .alias("kind")
    )
