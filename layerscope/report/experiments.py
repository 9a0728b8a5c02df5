"""What became of the experiments: regions taken out, and what was not measured."""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.knockouts import KnockOut
from layerscope.analyze.what_ifs import WhatIf
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.report.document import Column, Interval, Kind, Table
from layerscope.report.region_names import region_name
from layerscope.run_header import RunHeader
from layerscope.units import format_ns, format_things

_COLUMNS: Final = (
    Column("region", "region", Kind.REGION),
    Column("share_mean_ns", "mean share", Kind.TIME),
    Column("serial_share_ns", "mean share, serial", Kind.TIME),
    Column("serial_ns", "taken out of serial twin", Kind.INTERVAL),
    Column("marginal_ns", "taken out as captured", Kind.INTERVAL),
)


_WHAT_IFS: Final = (
    Column("experiment", "graph", Kind.TEXT),
    Column("pass_ns", "a pass", Kind.INTERVAL),
    Column("change_ns", "change", Kind.INTERVAL),
)


def what_if_tables(found: Mapping[str, tuple[WhatIf, ...]]) -> Iterator[Table]:
    """Of every arm whose graph was edited in other ways: what a pass then takes.

    Args:
        found: by arm.
    """
    for arm, graphs in found.items():
        if graphs:
            yield Table(
                title=f"edited graphs of {arm}, change against the captured one",
                columns=_WHAT_IFS,
                rows=tuple(
                    (each.experiment, _interval(each.pass_ns), _change(each))
                    for each in graphs
                ),
            )


def _change(found: WhatIf) -> Interval:
    change = found.change
    captured_ns = found.pass_ns.value - change.value
    relative = change.value / captured_ns if captured_ns else None
    return Interval(change.value, change.low, change.high, relative)


def knock_out_tables(
    knocked: Mapping[str, tuple[KnockOut, ...]], regions: pl.DataFrame
) -> Iterator[Table]:
    """Of every arm whose regions were taken out: observed shares beside what that gave.

    Args:
        knocked: by arm.
        regions: `shares.region_table`.
    """
    keys = ("arm", "experiment", "region", "share_mean_ns")
    shares = {tuple(key): share for *key, share in regions.select(keys).iter_rows()}
    for arm, found in knocked.items():
        if found:
            yield Table(
                title=f"regions of {arm} taken out, without a profiler",
                columns=_COLUMNS,
                rows=tuple(
                    (
                        each.region,
                        shares.get((arm, CAPTURED, each.region)),
                        shares.get((arm, SERIAL.name, each.region)),
                        _interval(each.serial),
                        _interval(each.captured),
                    )
                    for each in found
                ),
            )


def _interval(found: Estimate | None) -> Interval | None:
    return None if found is None else Interval(found.value, found.low, found.high)


def experiment_notes(
    header: RunHeader, knocked: Mapping[str, tuple[KnockOut, ...]]
) -> Iterator[str]:
    """How to read what was taken out, and each experiment that has no result."""
    if any(knocked.values()):
        yield (
            "regions taken out of the serial twin check its shares; as captured, other "
            "kernels fill what a region leaves, and its marginal is what the pass loses"
        )
        yield from _disabled(header, knocked)
    failed: dict[tuple[str, str, str], list[str]] = {}
    for trial in header.trials:
        if trial.outcome in ("refused", "discarded"):
            why = (trial.arm, trial.outcome, trial.reason)
            failed.setdefault(why, []).append(trial.experiment.name)
    for (arm, outcome, reason), names in failed.items():
        yield f"{arm}: {outcome}: {'; '.join(names)}: {reason}"


def _disabled(
    header: RunHeader, knocked: Mapping[str, tuple[KnockOut, ...]]
) -> Iterator[str]:
    """What disabled nodes cost, which is in the times of graphs that have some."""
    if not header.disabled_costs:
        yield "what disabled nodes cost is not known here, and is in no figure"
        return
    for arm, found in knocked.items():
        costs = [
            f"{format_ns(each.disabled_ns)} of {region_name(each.region)} "
            f"({format_things(round(each.nodes), 'node')})"
            for each in found
        ]
        if costs:
            yield (
                f"{arm}: what disabled nodes cost a pass is subtracted from the time "
                f"without the region: {', '.join(costs)}"
            )
