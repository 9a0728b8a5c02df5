"""Ranks of a job with planted clocks and arrivals, and what must be found in them."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from layerscope.analyze.rank_alignment import RankKernels
from layerscope.schema import TRACE_KERNELS

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"


class Planted(NamedTuple):
    """One collective: when each rank arrives, and when all of them end."""

    arrivals_ns: Sequence[int]
    end_ns: int
    name: str = ALL_REDUCE
    collective: str | None = None
    group: str | None = None


def job(planted: Sequence[Planted], clocks_ns: Sequence[int]) -> list[RankKernels]:
    """The kernels of every rank; its clock shows so much less than the true one."""
    return [
        RankKernels(
            rank, pl.DataFrame(_rows(planted, rank, clock_ns), schema=TRACE_KERNELS)
        )
        for rank, clock_ns in enumerate(clocks_ns)
    ]


def _rows(
    planted: Sequence[Planted], rank: int, clock_ns: int
) -> list[dict[str, object]]:
    """Collectives in which the rank takes part, and a kernel of its own before each."""
    rows: list[dict[str, object]] = []
    for each in planted:
        if rank >= len(each.arrivals_ns) or each.arrivals_ns[rank] < 0:
            continue
        start_ns = each.arrivals_ns[rank] - clock_ns
        names = (
            ("gemm", start_ns - 500, 400, None, None),
            (
                each.name,
                start_ns,
                each.end_ns - each.arrivals_ns[rank],
                each.collective,
                each.group,
            ),
        )
        for name, begin_ns, duration_ns, collective, group in names:
            row: dict[str, object] = dict.fromkeys(TRACE_KERNELS)
            row |= {"kind": "kernel", "device": rank, "stream": 7, "name": name}
            row |= {"start_ns": begin_ns, "duration_ns": duration_ns}
            rows.append(row | {"collective": collective, "group": group})
    return rows
