"""What one process left in the JSON of rocprofv3: records as they come, then rows."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from layerscope.ingest.assembling import Rows, blocks, call_rows
from layerscope.ingest.columns import Columns, Names, whole
from layerscope.ingest.rocprof_records import (
    Agent,
    CallRecord,
    CopyRecord,
    KernelRecord,
    KernelSymbol,
    Kind,
)
from layerscope.schema import INT, Schema
from layerscope.trace import TraceDevice

_GPU: Final = 2  # types of agents
_OWN_MEMORY: Final = (1, 2)  # types of heaps: a device's own, all or not all visible
_AXES: Final = ("x", "y", "z")
_API_OF_MARKERS: Final = r"^roctx[A-Z]\w*$"  # their names, where no message is known

_TIMED: Final = ("start_ns", "end_ns", "correlation")
_KERNELS: Final[Schema] = dict.fromkeys(
    (
        *_TIMED,
        *("device", "context", "stream", "symbol", "shared_bytes"),
        *(f"block_{axis}" for axis in _AXES),
        *(f"items_{axis}" for axis in _AXES),
    ),
    INT,
)
_COPIES: Final[Schema] = dict.fromkeys(
    (*_TIMED, "operation_kind", "operation", "source", "destination", "stream"), INT
)
_CALLS: Final[Schema] = dict.fromkeys(
    (*_TIMED, "operation_kind", "operation", "thread"), INT
)


class Process:
    """Collects the records of one process."""

    def __init__(self, names: Names) -> None:
        """Begin without any; `names` keeps the names of kernels, calls and markers."""
        self._names = names
        self._agents: dict[int, Agent] = {}
        self._symbols: dict[int, tuple[int, int | None]] = {}
        self._kinds: list[Kind] = []
        self._messages: dict[int, int] = {}
        self._kernels = Columns(_KERNELS)
        self._copies = Columns(_COPIES)
        self._calls = Columns(_CALLS)
        self.pid: int | None = None
        """As the system numbered it."""

        self.lists: set[str] = set()
        """Those that were seen."""

    def add_agent(self, agent: Agent) -> None:
        """A processor that the process saw."""
        if (handle := whole(agent.id.handle)) is not None:
            self._agents[handle] = agent

    def add_kind(self, kind: Kind) -> None:
        """The next kind of records; they are numbered as they come."""
        self._kinds.append(kind)

    def add_symbol(self, symbol: KernelSymbol) -> None:
        """A kernel that records name by its number."""
        candidates = (
            symbol.demangled_kernel_name,
            symbol.formatted_kernel_name,
            symbol.kernel_name,
        )
        name = next((name for name in candidates if name not in ("", "0")), "")
        number = whole(symbol.kernel_id)
        if number is not None and name:
            vectors, others = symbol.arch_vgpr_count, symbol.accum_vgpr_count
            registers = None if vectors is None else whole(vectors + (others or 0))
            self._symbols[number] = (self._names.number(name), registers)

    def add_kernel(self, record: KernelRecord) -> None:
        """A kernel that ran."""
        launch = record.dispatch_info
        stream = record.stream_id.handle
        block, items = launch.workgroup_size, launch.grid_size
        self._kernels.add(
            record.start_timestamp,
            record.end_timestamp,
            record.correlation_id.internal,
            launch.agent_id.handle,
            launch.queue_id.handle,
            launch.queue_id.handle if stream is None else stream,
            launch.kernel_id,
            launch.group_segment_size,
            *(block.x, block.y, block.z),
            *(items.x, items.y, items.z),
        )

    def add_copy(self, record: CopyRecord) -> None:
        """A copy that ran."""
        self._copies.add(
            record.start_timestamp,
            record.end_timestamp,
            record.correlation_id.internal,
            record.kind,
            record.operation,
            record.src_agent_id.handle,
            record.dst_agent_id.handle,
            record.stream_id.handle,
        )

    def add_call(self, record: CallRecord) -> None:
        """A call of an API, a marker, or the text of a marker."""
        if record.value is not None:
            if (key := whole(record.key)) is not None:
                self._messages[key] = self._names.number(record.value)
            return
        self._calls.add(
            record.start_timestamp,
            record.end_timestamp,
            record.correlation_id.internal,
            record.kind,
            record.operation,
            record.thread_id,
        )

    def devices(self) -> tuple[TraceDevice, ...]:
        """Its GPUs."""
        return tuple(
            TraceDevice(
                device=_device(agent),
                name=agent.product_name,
                architecture=agent.name,
                processors=agent.cu_count,
                memory_bytes=sum(
                    bank.size_in_bytes
                    for bank in agent.mem_banks
                    if bank.heap_type in _OWN_MEMORY
                ),
            )
            for agent in self._agents.values()
            if agent.type == _GPU
        )

    def rows(self) -> Rows:
        """All that it did; names and devices are looked up now that all are known."""
        kernels = pl.concat([self._kernel_rows(), self._copy_rows()], how="diagonal")
        every = self._named(self._calls.frame())
        kind = pl.col("_kind")
        calls = every.filter(kind.str.contains("^(HIP|HSA)")).with_columns(
            is_hsa=kind.str.starts_with("HSA")
        )
        messages = pl.col("correlation").replace_strict(
            self._messages, default=None, return_dtype=INT
        )
        has_length = pl.col("end_ns") > pl.col("start_ns")  # else it is no range
        marks = every.filter(
            kind.str.starts_with("MARKER_CORE") & has_length
        ).with_columns(_message=messages)
        marks = marks.with_columns(
            name=pl.coalesce(self._names.texts(marks["_message"]), "name"),
            kind=pl.lit("annotation"),
        ).filter(~pl.col("name").str.contains(_API_OF_MARKERS))
        return Rows(
            kernels,
            call_rows(calls.drop("_kind"), kernels),
            marks.drop("_kind", "_message", "correlation"),
        )

    def _kernel_rows(self) -> pl.DataFrame:
        frame = self._kernels.frame()
        symbol = pl.col("symbol")
        used = frame["symbol"].drop_nulls().unique()
        unknown = {key: f"(kernel {key})" for key in used if key not in self._symbols}
        numbers = {key: self._names.number(name) for key, name in unknown.items()}
        numbers |= {key: name for key, (name, _) in self._symbols.items()}
        registers = {key: count for key, (_, count) in self._symbols.items()}
        named = frame.with_columns(
            name=symbol.replace_strict(numbers, default=None, return_dtype=INT),
            registers=symbol.replace_strict(registers, default=None, return_dtype=INT),
        )
        return (
            named.with_columns(self._names.kernels(named["name"]))
            .with_columns(
                self._device_of("device"),
                kind=pl.lit("kernel"),
                **{
                    f"grid_{axis}": blocks(
                        pl.col(f"items_{axis}"), pl.col(f"block_{axis}")
                    )
                    for axis in _AXES
                },
            )
            .drop("symbol", *(f"items_{axis}" for axis in _AXES))
        )

    def _copy_rows(self) -> pl.DataFrame:
        gpus = [key for key, agent in self._agents.items() if agent.type == _GPU]
        is_to = pl.col("destination").is_in(gpus)
        device = pl.when(is_to).then("destination").otherwise("source")
        return (
            self._named(self._copies.frame())
            .with_columns(device=device, kind=pl.lit("copy"))
            .with_columns(self._device_of("device"))
            .drop("_kind", "source", "destination")
        )

    def _named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with the ``name`` of each operation and the ``_kind`` it is of."""
        keys = ["operation_kind", "operation"]
        pairs = frame.select(keys).unique(maintain_order=True)
        found = [self._kind(*pair) for pair in pairs.rows()]
        named = pairs.with_columns(
            pl.Series("_kind", [kind for kind, _ in found], pl.String),
            pl.Series("name", [name for _, name in found], pl.String),
        )
        joined = frame.join(
            named, on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        return joined.drop(keys)

    def _kind(self, kind: int | None, operation: int | None) -> tuple[str, str | None]:
        if kind is None or not 0 <= kind < len(self._kinds):
            return "", None
        found = self._kinds[kind]
        if operation is None or not 0 <= operation < len(found.operations):
            return found.kind, None
        return found.kind, found.operations[operation]

    def _device_of(self, column: str) -> pl.Expr:
        """Agents as rocprofv3 numbers them in its CSV files."""
        places = {handle: _device(agent) for handle, agent in self._agents.items()}
        handles = pl.col(column)
        known = handles.replace_strict(places, default=None, return_dtype=INT)
        return pl.coalesce(known, handles).alias(column)


def _device(agent: Agent) -> int:
    numbers = (whole(agent.logical_node_id), whole(agent.id.handle))
    return next((number for number in numbers if number is not None), 0)


def rows_of(processes: Sequence[Process]) -> Rows:
    """The rows of all `processes`, told apart where there are several."""
    every = [process.rows() for process in processes]
    if len(processes) == 1:
        return every[0]
    numbers = [
        place if process.pid is None else process.pid
        for place, process in enumerate(processes)
    ]
    return Rows(
        **{
            part: pl.concat(
                [
                    getattr(rows, part).with_columns(process=pl.lit(number, INT))
                    for rows, number in zip(every, numbers, strict=True)
                ],
                how="diagonal",
            )
            for part in ("kernels", "calls", "ranges")
        }
    )
