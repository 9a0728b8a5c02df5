"""What kernels take to read what their roles say they must, beside one cold read."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from layerscope.analyze.attribution import with_observer_cost
from layerscope.analyze.matching import joined_things
from layerscope.analyze.read_curve import FEWEST_READS, cold_read_ns
from layerscope.analyze.swept import SweptRun
from layerscope.analyze.twins import serial_twin
from layerscope.analyze.typical import TypicalPass, typical_pass
from layerscope.experiment import CAPTURED
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.role_bytes import role_operands
from layerscope.layers.spec import LayerSpec
from layerscope.passes import GRAPH_PASS_KEYS
from layerscope.run_header import KernelCost, ReadCost, RunHeader

_Operands: TypeAlias = Mapping[str, dict[str, int]]
_Unit: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRead:
    """The kernels of a pass that read the same operands; medians over passes, in ns."""

    roles: tuple[str, ...]
    """In the order of their kernels; several where they have parts in common."""

    kernels: int
    required_bytes: int
    """Of the operands, each once however many kernels read it."""

    duration_ns: float
    """Of the kernels, added up."""

    time_ns: float
    """The same with the gap before each kernel; of a serial twin less what the profiler
    adds to it."""

    cold_read_ns: float
    """Of one kernel that reads as many bytes."""


@dataclass(frozen=True, slots=True)
class RoleReads:
    """What the kernels of one arm take, by role."""

    reads: tuple[RoleRead, ...]
    """In the order of their first kernels; at least one."""

    has_waits: bool
    """Whether times are of the graph as captured, where a kernel that starts early also
    waits, and not of a serial twin, where a duration is work."""


def role_reads(
    swept: SweptRun, arm: str, reads: Sequence[ReadCost] = ()
) -> RoleReads | None:
    """The kernels of `arm` whose roles say what they must read.

    Roles that share a part (``gate_up`` and ``gate_up+activation``) are one unit: which
    of their kernels reads what is not known. Only passes with the arm's typical list of
    kernels are used; of experts, the mean number that the passes drew.

    A kernel's time includes the gap before it, as that of a cold read includes its
    launch. What the profiler adds is in the gaps (see `attribution.changes`). It is
    calibrated on serial chains, and subtracted from serial twins alone.

    Args:
        swept: what holds the arm.
        arm: which one.
        reads: the curve of cold reads; that of the run's header where there is none.

    Returns:
        None without a curve, of foreign code, and of an arm of which no role with
        operands was recorded.
    """
    header = swept.header
    curve, known = reads or header.reads, _known(header)
    if len(curve) < FEWEST_READS or not known:
        return None
    twin = serial_twin(swept.run, arm)
    typical = typical_pass(swept.graph(arm, twin.experiment or CAPTURED))
    units = _units(_roles(typical), known)
    if not units:
        return None
    costs = header.observer_costs if twin.experiment else ()
    times = _times(typical, units, costs)
    found = (
        _read(unit, times[unit[0]], _required(unit, known), curve) for unit in units
    )
    return RoleReads(tuple(found), has_waits=not twin.experiment)


def _known(header: RunHeader) -> _Operands:
    """The parts of roles whose operands the spec fixes, and their bytes."""
    spec = header.study.spec
    drawn = [count for step in header.distinct_experts for count in step]
    if isinstance(spec, LayerSpec):
        is_drawn = bool(spec.model.experts) == bool(drawn)
        return role_operands(spec, drawn) if is_drawn else {}
    return role_operands(spec) if isinstance(spec, DraftSpec) else {}


def _roles(typical: TypicalPass) -> list[str]:
    """The roles of a pass, in the order of their first kernels."""
    named = typical.alike.filter(pl.col("role").is_not_null())
    first = named.group_by("role").agg(pl.col("node").min())
    return first.sort("node")["role"].to_list()


def _parts(role: str, known: _Operands) -> frozenset[str]:
    return frozenset(role.split("+")).intersection(known)


def _units(roles: Sequence[str], known: _Operands) -> list[_Unit]:
    """The roles with operands, those that have parts in common together; in order."""
    parts = {role: _parts(role, known) for role in roles}
    units = (
        tuple(role for role in roles if parts[role] & group)
        for group in joined_things(parts.values())
    )
    return sorted(units, key=lambda unit: roles.index(unit[0]))


def _required(unit: _Unit, known: _Operands) -> int:
    """Bytes of the operands of all its parts, each operand once."""
    parts = [part for role in unit for part in _parts(role, known)]
    return sum(dict(ChainMap(*(known[part] for part in parts))).values())


def _times(
    typical: TypicalPass, units: Sequence[_Unit], costs: Sequence[KernelCost]
) -> dict[str, tuple[int, float, float]]:
    """Kernels, duration and time of every unit, by its first role."""
    unit_of = {role: unit[0] for unit in units for role in unit}
    unit = pl.col("role").replace_strict(unit_of, default=None).alias("unit")
    spent_ns = pl.col("gap_ns") + pl.col("duration_ns")
    medians = (
        typical.alike.filter(pl.col("role").is_in(list(unit_of)))
        .group_by(*GRAPH_PASS_KEYS, unit)
        .agg(pl.len(), pl.col("duration_ns").sum(), spent_ns=spent_ns.sum())
        .group_by("unit")
        .agg(pl.col("len", "duration_ns", "spent_ns").median())
    )
    added = (
        with_observer_cost(typical.kernels, costs)
        .filter(pl.col("role").is_in(list(unit_of)))
        .group_by(unit)
        .agg(pl.col("cost_ns").sum())
    )
    rows = medians.join(added, on="unit").select(
        "unit",
        pl.col("len").cast(pl.Int64),
        "duration_ns",
        pl.col("spent_ns") - pl.col("cost_ns"),
    )
    return {name: (kernels, *times) for name, kernels, *times in rows.iter_rows()}


def _read(
    unit: _Unit,
    taken: tuple[int, float, float],
    required: int,
    curve: Sequence[ReadCost],
) -> RoleRead:
    kernels, duration_ns, time_ns = taken
    return RoleRead(
        roles=unit,
        kernels=kernels,
        required_bytes=required,
        duration_ns=duration_ns,
        time_ns=time_ns,
        cold_read_ns=cold_read_ns(curve, required),
    )
