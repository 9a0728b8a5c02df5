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
    "pass_index": INT,  # from 0; -1 before the first pass
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


NULLABLE: Final = frozenset(
    {
        *("role", "stream", "required_bytes"),
        *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
        *("registers", "static_shared_bytes", "dynamic_shared_bytes"),
        *("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw"),
        "throttle_reasons",
    }
)
"""The columns that may lack values: what a recorder or a device could not tell."""

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
    faults = [
        f"{name} {fault}"
        for name, dtype in schema.items()
        if (fault := _fault(frame[name], dtype))
    ]
    if faults:
        msg = f"{what}: {', '.join(faults)}; damaged, or written by another program"
        raise RecordError(msg)
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _fault(column: pl.Series, dtype: pl.DataType) -> str:
    """Why `column` does not fit `dtype` and its name, or an empty string."""
    if column.name not in NULLABLE and column.null_count():
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
