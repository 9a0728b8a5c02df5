"""The switches of backends, one by one: what each does, and whether overlap does it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from layerscope.analyze.doses import DoseTest
from layerscope.analyze.statistics import Comparison, Estimate, Verdict
from layerscope.analyze.switches import (
    ArmOfSwitches,
    Mechanisms,
    SwitchEffect,
    Together,
    Turned,
)
from layerscope.report.document import Cell, Column, Fact, Interval, Kind, Table
from layerscope.report.doses import rise_text
from layerscope.switches import SwitchKind
from layerscope.units import format_interval, format_ns

_ARMS: Final = (
    Column("switch_arm", "arm", Kind.TEXT),
    Column("pass_ns", "anchor", Kind.INTERVAL),
    Column("change_ns", "change", Kind.INTERVAL),
    Column("kernels", "kernels", Kind.COUNT),
    Column("programmatic_edges", "programmatic edges", Kind.COUNT),
    Column("edges", "of edges", Kind.COUNT),
)
_SWITCHES: Final = (
    Column("switch", "switch", Kind.TEXT),
    Column("added_ns", "alone", Kind.INTERVAL),
    Column("last_ns", "beside all others", Kind.INTERVAL),
    Column("kernels", "kernels", Kind.TEXT),
    Column("bits", "outputs", Kind.TEXT),
)
_IDLE: Final = Column("idle", "changes nothing here", Kind.TEXT)
_TWINS: Final = (
    Column("switch", "switch", Kind.TEXT),
    Column("kind", "changes", Kind.TEXT),
    Column("added_serial_ns", "alone", Kind.INTERVAL),
    Column("last_serial_ns", "beside all others", Kind.INTERVAL),
)
_DOSES: Final = (
    Column("dose_ns", "delay", Kind.TIME),
    Column("without_switch_ns", "a pass without", Kind.INTERVAL),
    Column("with_switch_ns", "a pass with", Kind.INTERVAL),
    Column("saving_ns", "saving", Kind.INTERVAL),
)
_CLEAR: Final = (Verdict.FASTER, Verdict.SLOWER)


def switch_tables(found: Iterable[Mechanisms]) -> Iterator[Table]:
    """Of every backend taken apart: its switches, its arms, and tests of overlap."""
    for each in found:
        yield _switch_table(each)
        if each.arms:
            yield Table(
                title=f"arms of the switches of {each.backend}, change against all off",
                columns=_ARMS,
                rows=tuple(_arm(arm) for arm in each.arms),
            )
        yield from _twin_tables(each)
        yield from _dose_tables(each)


def _switch_table(found: Mechanisms) -> Table:
    """A row a switch; those that are idle last, with the reason instead of figures."""
    kernels = {arm.arm: arm.kernels for arm in found.arms}
    plain = Table(
        title=f"switches of {found.backend}, change that each makes",
        columns=_SWITCHES,
        rows=tuple(
            (
                effect.switch.name,
                _change(effect.added.change),
                _change(effect.last.change),
                _kernels(kernels.get(effect.added.off), kernels.get(effect.added.on)),
                _bits(effect),
            )
            for effect in found.effects
        ),
    )
    if not found.idle:
        return plain
    rows = [(*row, None) for row in plain.rows]
    gap = (None,) * (len(_SWITCHES) - 1)
    idle = [(switch.name, *gap, switch.idle) for switch in found.idle]
    return replace(plain, columns=(*_SWITCHES, _IDLE), rows=(*rows, *idle))


def _arm(arm: ArmOfSwitches) -> tuple[Cell, ...]:
    return (
        arm.arm,
        _interval(arm.pass_ns),
        _change(arm.change),
        arm.kernels,
        arm.programmatic,
        arm.edges,
    )


def _twin_tables(found: Mechanisms) -> Iterator[Table]:
    rows = tuple(
        (
            effect.switch.name,
            effect.switch.kind,
            _change(effect.added.serial),
            _change(effect.last.serial),
        )
        for effect in found.effects
        if effect.added.serial or effect.last.serial
    )
    if rows:
        yield Table(
            title=(
                f"switches of {found.backend} without programmatic edges, change that "
                "each makes"
            ),
            columns=_TWINS,
            rows=rows,
        )


def _dose_tables(found: Mechanisms) -> Iterator[Table]:
    for effect in found.effects:
        if effect.doses is not None:
            yield Table(
                title=(
                    f"dose test of {effect.switch.name}, {found.backend}: a kernel "
                    f"spins before {_delayed(effect.doses)}"
                ),
                columns=_DOSES,
                rows=tuple(
                    (
                        dose.delay_ns,
                        _interval(dose.without_ns),
                        _interval(dose.with_ns),
                        _interval(dose.saving_ns),
                    )
                    for dose in effect.doses.doses
                ),
            )


def _delayed(test: DoseTest) -> str:
    return test.delayed.removeprefix("/")


def _interval(found: Estimate) -> Interval | None:
    return Interval(found.value, found.low, found.high) if found.samples else None


def _change(found: Comparison | None) -> Interval | None:
    if found is None or not found.difference.samples:
        return None
    return Interval(
        value=found.difference.value,
        low=found.difference.low,
        high=found.difference.high,
        relative=found.relative,
        verdict=found.verdict,
        reason=found.reason,
    )


def _kernels(off: float | None, on: float | None) -> str | None:
    if off is None or on is None:
        return None
    return f"{off:g} → {on:g}"


def _bits(effect: SwitchEffect) -> str | None:
    checks = [
        turned.is_equal
        for turned in (effect.added, effect.last)
        if turned.is_equal is not None
    ]
    if not checks:
        return None
    told = "as it says" if effect.switch.bitwise else "it says nothing of them"
    return f"{'equal' if all(checks) else 'other'} bits, {told}"


def switch_headlines(found: Iterable[Mechanisms]) -> Iterator[Fact]:
    """Whether the switches of a backend add up, and what the dose tests say."""
    for each in found:
        if each.together is not None:
            yield Fact(f"switches of {each.backend}", _together(each.together))
        for effect in each.effects:
            if effect.doses is not None:
                yield Fact(
                    f"dose test of {effect.switch.name}, {each.backend}",
                    rise_text(effect.doses, effect.last.serial),
                )


def _together(found: Together) -> str:
    beyond = found.beyond
    whole = format_ns(found.together.value, signed=True)
    parts = format_ns(found.one_by_one.value, signed=True)
    is_clear = not beyond.low <= 0 <= beyond.high
    adds_up = "so they do not add up" if is_clear else "which is not told from zero"
    interval = format_interval(beyond.value, beyond.low, beyond.high)
    return (
        f"all together {whole}, the sum of each alone {parts}; between the two is "
        f"{interval}, {adds_up}"
    )


def switch_notes(found: Iterable[Mechanisms]) -> Iterator[str]:
    """How to read the tables, and each switch that is not what it says."""
    told = list(found)
    if not told:
        return
    if any(each.effects for each in told):
        yield (
            "a switch alone is turned on where all others are off; beside all others "
            "it is turned on last, which is what leaving it out would cost"
        )
    if any(effect.added.serial or effect.last.serial for effect in _effects(told)):
        yield (
            "without programmatic edges every kernel starts after the one before has "
            "ended: a switch that only moves work makes no difference there"
        )
    if any(effect.doses for effect in _effects(told)):
        yield (
            "dose test: the kernel that spins lets the next one start at once, and is "
            "there at a delay of 0 too"
        )
    for each in told:
        if each.builds is not None:
            builds = each.builds
            yield (
                f"two builds of {each.arms[0].arm} differ by "
                f"{format_interval(builds.value, builds.low, builds.high)}: what a "
                "switch changes within that is no difference"
            )
        for effect in each.effects:
            yield from _doubts(each.backend, effect)


def _effects(found: Iterable[Mechanisms]) -> Iterator[SwitchEffect]:
    for each in found:
        yield from each.effects


def _doubts(backend: str, effect: SwitchEffect) -> Iterator[str]:
    switch = effect.switch
    for turned in (effect.added, effect.last):
        if turned.change is None:
            yield f"{backend}: {switch.name} was not measured between {_ends(turned)}"
    moved = [
        turned
        for turned in (effect.added, effect.last)
        if turned.serial is not None and turned.serial.verdict in _CLEAR
    ]
    if switch.kind == SwitchKind.OVERLAP and moved:
        yield (
            f"{backend}: {switch.name} makes a difference without programmatic edges "
            f"too ({_ends(moved[0])}): it does more than move work, or its two "
            "builds differ, as two of the same arm may"
        )


def _ends(turned: Turned) -> str:
    return f"{turned.off} and {turned.on}"
