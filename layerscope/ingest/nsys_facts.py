"""What an export of Nsight Systems says of itself, of its session and of the GPUs."""

import re
from typing import Final

import polars as pl

from layerscope.ingest.cleaning import LATEST_NS
from layerscope.ingest.database import Database
from layerscope.trace import TraceDevice, TraceLog

_METADATA: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the latter up to 2023.2
_VERSION: Final = re.compile(r"[\w.]{1,40}")
_LOSS: Final = "Not all CUDA events"
_MOST_DEVICES: Final = 1024
_GPU_NUMBERS: Final = (
    *("id", "cuDevice", "computeMajor", "computeMinor", "smCount", "totalMemory"),
)


def written_by(database: Database) -> str:
    """The version that exported it: ``Nsight Systems 2026.1.1.204, schema 3.24.14``."""
    for table in _METADATA:
        facts = database.pairs(table, "name", "value")
        version = facts.get("EXPORT_PRODUCT_VERSION", "")
        schema = facts.get("EXPORT_SCHEMA_VERSION", "")
        if _VERSION.fullmatch(version) and _VERSION.fullmatch(schema):
            return f"Nsight Systems {version}, schema {schema}"
    return "Nsight Systems"


def session_start_ns(database: Database) -> int | None:
    """Unix time of the export's time 0, or None."""
    starts = database.frame("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])
    first = starts["utcEpochNs"].drop_nulls().head(1)
    return first.item() if first.len() and 0 < first.item() < LATEST_NS else None


def gpus_of(
    work: pl.DataFrame, ranges: pl.DataFrame, database: Database, log: TraceLog
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[TraceDevice, ...]]:
    """Work and ranges with device numbers that name one GPU each, and those GPUs.

    A process may see only some GPUs, and numbers them from 0. Where two processes thus
    use a number for different GPUs, all numbers become those of the machine.

    Args:
        work: Int64 columns ``process`` and ``device``, and others.
        ranges: the same.
        database: where they are from.
        log: is told of warnings that work was lost, and of changed numbers.
    """
    warnings = database.frame("DIAGNOSTIC_EVENT", [], ["text"])
    log.add(
        "doubted",
        "warnings of Nsight Systems that it did not collect all CUDA events",
        warnings.filter(pl.col("text").str.contains(_LOSS, literal=True)).height,
    )
    gpus = database.frame("TARGET_INFO_GPU", _GPU_NUMBERS, ["name"])
    used = _used(work, gpus, database)
    ambiguous = used.group_by("device").agg(pl.col("id").n_unique())
    if (ambiguous["id"] > 1).any():
        log.add("repaired", "processes that number the GPUs in ways of their own")
        work, ranges = _renumbered(work, used), _renumbered(ranges, used)
        used = used.with_columns(device="id")
    known = used.unique("device", keep="first", maintain_order=True).join(
        gpus.unique("id", keep="first"), on="id", maintain_order="left"
    )
    rows = known.sort("device").head(_MOST_DEVICES).iter_rows(named=True)
    return work, ranges, tuple(_device(row) for row in rows)


def _used(work: pl.DataFrame, gpus: pl.DataFrame, database: Database) -> pl.DataFrame:
    """Each process's device numbers and the machine's ``id`` of that GPU."""
    seen = database.frame("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
    mapped = seen.select(process="pid", device="cudaId", _mapped="gpuId")
    ordinal = gpus.select(device="cuDevice", _ordinal="id")
    return (
        work.select("process", "device")
        .drop_nulls("device")
        .unique(maintain_order=True)
        .join(
            mapped.drop_nulls().unique(["process", "device"], keep="first"),
            on=["process", "device"],
            how="left",
            maintain_order="left",
        )
        .join(
            ordinal.drop_nulls().unique("device", keep="first"),
            on="device",
            how="left",
            maintain_order="left",
        )
        .select(
            "process", "device", id=pl.coalesce("_mapped", "_ordinal", pl.col("device"))
        )
    )


def _renumbered(frame: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    if "device" not in frame.columns:
        return frame
    return (
        frame.join(
            used,
            on=["process", "device"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(device=pl.coalesce("id", "device"))
        .drop("id")
    )


def _device(row: dict[str, int | str | None]) -> TraceDevice:
    major, minor = row["computeMajor"], row["computeMinor"]
    is_told = major is not None and minor is not None
    return TraceDevice(
        device=int(row["device"] or 0),
        name=str(row["name"] or ""),
        architecture=f"sm_{major}{minor}" if is_told else "",
        processors=int(row["smCount"] or 0),
        memory_bytes=int(row["totalMemory"] or 0),
    )
