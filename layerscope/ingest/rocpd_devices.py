"""Agents of rocpd runs: which of them are GPUs, and which GPUs are the same."""

from dataclasses import dataclass
from typing import Final

import msgspec
import polars as pl

from layerscope.ingest.rocpd_run import RocpdRun
from layerscope.trace import TraceDevice, TraceLog

_NUMBERS: Final = ("id", "nid", "absolute_index")
_TEXTS: Final = ("type", "name", "product_name", "model_name", "extdata")
_MOST_DEVICES: Final = 1024


class _Agent(msgspec.Struct):
    cu_count: int = 0


def agents_of(run: RocpdRun) -> pl.DataFrame:
    """The agents of a run.

    Returns:
        Columns ``id``, ``nid`` (the machine), ``absolute_index`` (on it; the id where
        the file has no index), ``is_gpu`` and texts that describe it.
    """
    agents = run.frame("info_agent", _NUMBERS, _TEXTS)
    return agents.with_columns(
        absolute_index=pl.coalesce("absolute_index", "id"),
        is_gpu=(pl.col("type") == "GPU").fill_null(value=False),
    )


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Placed:
    """Work whose devices have numbers of their own, and those devices."""

    kernels: pl.DataFrame
    devices: tuple[TraceDevice, ...]


def placed(kernels: pl.DataFrame, agents: pl.DataFrame, log: TraceLog) -> Placed:
    """Give work the number of its GPU: the agent's index, if only one machine uses it.

    Args:
        kernels: Int64 columns ``run`` and ``agent_id``, and others.
        agents: `agents_of` all runs, and ``run``.
        log: is told where machines use the same numbers, which then are counted anew.
    """
    gpus = (
        agents.filter("is_gpu")
        .drop_nulls("id")
        .unique(["run", "id"], keep="first", maintain_order=True)
    )
    machines = gpus.unique(["nid", "absolute_index"], maintain_order=True)
    if machines["absolute_index"].n_unique() < machines.height:
        log.add("repaired", "machines that use the same numbers for their GPUs")
        numbers = machines.sort("nid", "absolute_index").select(
            "nid", "absolute_index", device=pl.int_range(pl.len(), dtype=pl.Int64)
        )
        gpus = gpus.join(
            numbers,
            on=["nid", "absolute_index"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
    else:
        gpus = gpus.with_columns(device="absolute_index")
    work = kernels.join(
        gpus.select("run", "device", agent_id="id"),
        on=["run", "agent_id"],
        how="left",
        maintain_order="left",
    ).with_columns(device=pl.coalesce("device", "agent_id"))
    used = gpus.filter(pl.col("device").is_in(work["device"].unique().implode()))
    rows = used.unique("device", keep="first").sort("device").head(_MOST_DEVICES)
    devices = tuple(_device(row) for row in rows.iter_rows(named=True))
    return Placed(work.drop("agent_id"), devices)


def _device(row: dict[str, int | str | None]) -> TraceDevice:
    return TraceDevice(
        device=int(row["device"] or 0),
        name=str(row["product_name"] or row["model_name"] or ""),
        architecture=str(row["name"] or ""),
        processors=_processors(str(row["extdata"] or "")),
    )


def _processors(text: str) -> int:
    try:
        return msgspec.json.decode(text, type=_Agent).cu_count
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return 0
