"""Every frame that crosses a module border, column by column.

Times are plain ``Int64`` nanoseconds; names carry their unit. `conform` is called once
where a frame enters (a recorder, a reader); after that the columns are trusted.
"""

from typing import Final, TypeAlias

import polars as pl

from layerscope.errors import RecordError

Schema: TypeAlias = dict[str, pl.DataType]

INT: Final = pl.Int64()
TEXT: Final = pl.String()
BOOLEAN: Final = pl.Boolean()

KERNEL_KINDS: Final = ("kernel", "copy", "fill", "operator")

KERNELS: Final[Schema] = {
    # which replay: (arm, experiment, capture, replay) is unique
    "arm": TEXT,
    "experiment": TEXT,  # `Experiment.name`: "captured", "serial" and others
    "capture": INT,
    "round": INT,
    "replay": INT,  # unique within (arm, experiment, capture); dropped ones leave holes
    # which node of it
    "pass_index": INT,  # from 0; -1 of what belongs to no pass
    "node": INT,  # creation order within the replay, from 0
    "kind": TEXT,  # one of KERNEL_KINDS
    "name": TEXT,
    "region": TEXT,
    "role": TEXT,  # null where the backend names none
    "stream": INT,
    # when: absolute time in the replay is pass_start_ns + start_ns
    "pass_start_ns": INT,  # earliest start in the pass, since the replay's first start
    "start_ns": INT,  # since pass_start_ns
    "duration_ns": INT,
    # how it was launched; null for operators, copies and fills
    "grid_x": INT,
    "grid_y": INT,
    "grid_z": INT,
    "block_x": INT,
    "block_y": INT,
    "block_z": INT,
    "registers": INT,  # per thread
    "static_shared_bytes": INT,
    "dynamic_shared_bytes": INT,
}
"""One row a recorded kernel, copy, fill or CPU operator."""

SAMPLES: Final[Schema] = {
    # "anchor" before a profiler was attached, "after" it was detached; "knockout":
    # rounds in which regions were left out, beside the whole graphs
    "phase": TEXT,
    "arm": TEXT,
    "experiment": TEXT,
    "capture": INT,
    "round": INT,  # within the capture and phase
    "position": INT,  # place in the round's random order, from 0
    "passes": INT,  # length of the replay
    "step": INT,  # input step of the replay; fixes inputs and routing
    "duration_ns": INT,
    "required_bytes": INT,  # bytes the drawn routing and the KV make necessary
    # read from NVML once a round; null where there is none
    "sm_clock_mhz": INT,
    "memory_clock_mhz": INT,
    "temperature_c": INT,
    "power_mw": INT,
    "throttle_reasons": INT,  # NVML bit mask
}
"""One row an unprofiled replay."""

EDGES: Final[Schema] = {
    "arm": TEXT,
    "experiment": TEXT,
    "source": INT,  # nodes by creation order, as in KERNELS
    "target": INT,
    "programmatic": BOOLEAN,  # else the target waits for the end of the source
    "from_port": INT,  # of CUDA's edge data; 0 of edges that are not programmatic
    "to_port": INT,
}
"""One row an edge of the longest captured graph of an arm."""

STAMPS: Final[Schema] = {
    "arm": TEXT,
    "reading": INT,  # which replay whose last pass was looked at, from 0
    "role": TEXT,
    "block": INT,  # of the kernel, from 0; x runs first
    # since the first block of the pass began; null of what a block did not do, all
    # but the first where it left at once
    "begun_ns": INT,
    "waited_ns": INT,  # its first wait for the kernel before it was over
    "triggered_ns": INT,  # it let the kernel after it start
    "ended_ns": INT,
}
"""One row a block of a kernel that notes when its blocks work."""

RANGES: Final[Schema] = {
    "kind": TEXT,  # "arm", "pass" or "region"
    "name": TEXT,
    "start_ns": INT,
    "end_ns": INT,
}
"""Named spans of host time (NVTX, record_function)."""

PASS_SHARES: Final[Schema] = {
    "arm": TEXT,
    "experiment": TEXT,
    "capture": INT,
    "round": INT,
    "replay": INT,  # unique within (arm, experiment, capture); dropped ones leave holes
    "pass_index": INT,
    "region": TEXT,
    "kernels": INT,
    "gap_ns": INT,  # idle time that this region's kernels ended
    "duration_ns": INT,  # sum of durations
    "hidden_ns": INT,  # part of duration_ns behind the frontier
    "share_ns": INT,  # gap_ns + duration_ns - hidden_ns; adds up to the increment
    "span_ns": INT,  # last end - first start
}
"""One row a (pass, region): the exact split of a pass's increment."""

TRACE_KINDS: Final = ("kernel", "copy", "fill")

TRACE_KERNELS: Final[Schema] = {
    # where: numbers as the file's tool gives them; null where it gives none
    "process": INT,  # which process launched it, where a file holds several
    "device": INT,
    "context": INT,
    "stream": INT,
    # what
    "kind": TEXT,  # one of TRACE_KINDS
    "name": TEXT,  # as in the file, demangled where the file has both forms
    # when
    "start_ns": INT,  # since the trace's time 0
    "duration_ns": INT,  # never negative
    # launched by: (process, correlation) names a call of TRACE_CALLS, if it is there
    "correlation": INT,
    "graph": INT,  # executable graph it was a node of
    "graph_node": INT,  # which node: the same in every replay of that graph
    # how; null where the file does not tell
    "grid_x": INT,  # blocks, also where the tool counts work-items
    "grid_y": INT,
    "grid_z": INT,
    "block_x": INT,
    "block_y": INT,
    "block_z": INT,
    "registers": INT,  # per thread
    "shared_bytes": INT,  # static and dynamic
    # of collectives whose parameters the file tells
    "collective": TEXT,  # "allreduce", "_allgather_base", ...
    "group": TEXT,  # the process group's name
}
"""One row a kernel, copy or fill that ran on a device, from another tool's trace."""

TRACE_STREAM: Final = ("process", "device", "context", "stream")
"""What names a stream, whose work runs in order."""

LAUNCH_KEYS: Final = ("process", "correlation")
"""What names the call that launched a kernel."""

TRACE_CALLS: Final[Schema] = {
    "process": INT,
    "thread": INT,
    "name": TEXT,  # "cudaLaunchKernel", "hipGraphLaunch", ...; version suffixes cut
    "start_ns": INT,
    "duration_ns": INT,
    "correlation": INT,  # unique within the process
}
"""One row a call of the runtime or the driver that device work is linked to."""

TRACE_RANGE_KINDS: Final = ("step", "module", "annotation", "graph")

TRACE_RANGES: Final[Schema] = {
    "kind": TEXT,  # one of TRACE_RANGE_KINDS
    "name": TEXT,
    "process": INT,
    "thread": INT,  # null of ranges on a device
    "device": INT,  # null of ranges on the host
    "stream": INT,
    "start_ns": INT,
    "end_ns": INT,
}
"""One row a named range: a step of the profiler, a module, NVTX, roctx, annotations,
or a replay of a graph that was recorded as a whole, without its kernels."""

PLACED_KERNELS: Final[Schema] = {
    **TRACE_KERNELS,
    # which step and layer, see `analyze.layer_finder`
    "step": INT,  # from 0 on each device; null outside steps
    "step_kind": TEXT,  # "decode", "prefill", "mixed" or "unknown"; null outside steps
    "layer": INT,  # from 0 in each step; null before the first and after the last
    "variant": TEXT,  # layers of one variant run the same kernels: "A", "B", ...
    "position": INT,  # place in the layer, from 0
    # which region, and what said so
    "region": TEXT,  # of `regions.Region`, a user's own name, or "unassigned"
    "role": TEXT,  # null where nothing names one
    # "range NAME", "rule NAME", "sequence NAME", "neighbours" or "nothing"
    "assigned_by": TEXT,
}
"""One row a row of `TRACE_KERNELS`, in the order (device, start, end, of the file)."""

UNASSIGNED: Final = "unassigned"
"""The region of kernels that nothing says a region of."""


NULLABLE: Final = frozenset(
    {
        *("role", "stream", "required_bytes"),
        *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
        *("registers", "static_shared_bytes", "dynamic_shared_bytes"),
        *("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw"),
        *("throttle_reasons", "begun_ns", "waited_ns", "triggered_ns", "ended_ns"),
        # of traces
        *("process", "thread", "device", "context", "correlation"),
        *("graph", "graph_node"),
        *("shared_bytes", "collective", "group"),
        *("step_kind", "layer", "variant"),
    }
)
"""The columns that may lack values: what a recorder or a device could not tell."""

_NULLABLE_PLACED: Final = NULLABLE | {"position", "step"}  # which samples always have

_EXACT_FLOAT: Final = 2**53  # above it, a float no longer tells whole numbers apart


def empty(schema: Schema) -> pl.DataFrame:
    """A frame of no rows in `schema`."""
    return pl.DataFrame(schema=schema)


def conform(frame: pl.DataFrame, schema: Schema, *, what: str) -> pl.DataFrame:
    """`frame` with exactly the columns of `schema`, in its order and types.

    Integers of any width are taken, and floats that are all whole numbers; numbers in
    text, truth values and times are not, as nothing here writes them.

    Args:
        frame: any frame; extra columns are an error.
        schema: one of this module's schemas.
        what: names the frame in the error, such as ``samples.parquet``.

    Raises:
        RecordError: a column is missing, unknown, of another type, lacks values that
            it must have, or cannot be cast without loss.
    """
    missing = [name for name in schema if name not in frame.columns]
    unknown = [name for name in frame.columns if name not in schema]
    if missing or unknown:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has unknown {', '.join(unknown)}"] if unknown else []
        msg = f"{what}: {' and '.join(parts)}; written by another version?"
        raise RecordError(msg)
    nullable = _NULLABLE_PLACED if schema is PLACED_KERNELS else NULLABLE
    faults = [
        f"{name} {fault}"
        for name, dtype in schema.items()
        if (fault := _fault(frame[name], dtype, nullable))
    ]
    if faults:
        msg = f"{what}: {', '.join(faults)}; damaged, or written by another program"
        raise RecordError(msg)
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _fault(column: pl.Series, dtype: pl.DataType, nullable: frozenset[str]) -> str:
    """Why `column` does not fit `dtype` and its name, or an empty string."""
    if column.name not in nullable and column.null_count():
        return f"lacks {column.null_count()} of {column.len()} values"
    if column.dtype == pl.Null:
        return ""
    if dtype == TEXT:
        textual = isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
        return "" if textual else f"is {column.dtype}, not text"
    if dtype == BOOLEAN:
        is_truth = column.dtype == pl.Boolean
        return "" if is_truth else f"is {column.dtype}, not true or false"
    return _fault_of_numbers(column, dtype)


def _fault_of_numbers(column: pl.Series, dtype: pl.DataType) -> str:
    if column.dtype.is_float():
        whole = column.is_finite() & (column.abs() <= _EXACT_FLOAT)
        whole &= column == column.round()
        return "" if whole.all() else "has values that are not whole numbers"
    if not column.dtype.is_integer():
        return f"is {column.dtype}, not whole numbers"
    fits = column.cast(dtype, strict=False).null_count() == column.null_count()
    return "" if fits else f"exceeds {dtype}"
