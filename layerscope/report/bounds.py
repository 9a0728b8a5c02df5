"""How far the arms are from what order, bytes and dependencies alone would cost."""

from collections.abc import Iterator

from layerscope.analyze.bootstrap import Estimate
from layerscope.report.document import Cell, Column, Interval, Kind, Table
from layerscope.run_header import Bound, ReadCost, RunHeader
from layerscope.study import AA_SUFFIX
from layerscope.units import NOTHING, format_bytes, format_ns, format_number, tb_per_s

_STANDARD = "standard chain"
_COLUMNS = (
    Column("chain", "kernels of", Kind.TEXT),
    Column("bound", "bound", Kind.TEXT),
    Column("pass_ns", "pass", Kind.INTERVAL),
    Column("kernels", "kernels", Kind.COUNT),
    Column("bytes", "bytes", Kind.SIZE),
)


def bounds_table(header: RunHeader, anchors: dict[str, Estimate]) -> Iterator[Table]:
    """Every bound, and each arm's anchor as a multiple of it; none without bounds.

    An arm is held against the standard chain of the layer and its own kernels.

    Args:
        header: of the run.
        anchors: by arm.
    """
    if not header.bounds:
        return
    arms = [
        arm
        for arm, anchor in anchors.items()
        if anchor.samples and not arm.endswith(AA_SUFFIX)
    ]
    yield Table(
        title="distance to bounds, an arm's anchor over each",
        columns=(
            *_COLUMNS,
            *(Column(f"{arm}_over_bound", arm, Kind.RATIO) for arm in arms),
        ),
        rows=tuple(_row(bound, anchors, arms) for bound in header.bounds),
    )


def _row(
    bound: Bound, anchors: dict[str, Estimate], arms: list[str]
) -> tuple[Cell, ...]:
    return (
        bound.arm or _STANDARD,
        bound.name,
        Interval(bound.pass_ns, bound.low_ns, bound.high_ns),
        bound.kernels,
        bound.bytes,
        *(
            anchors[arm].value / bound.pass_ns if bound.arm in ("", arm) else None
            for arm in arms
        ),
    )


def bounds_notes(header: RunHeader) -> Iterator[str]:
    """What a cold read takes on this machine."""
    if header.reads:
        curve = ", ".join(map(_read, header.reads))
        yield f"cold reads of one kernel, its launch included: {curve}"


def _read(read: ReadCost) -> str:
    speed = tb_per_s(read.bytes, read.duration_ns)
    size, time = format_bytes(read.bytes), format_ns(read.duration_ns)
    told = NOTHING if speed is None else format_number(speed, 2)
    return f"{size} in {time} ({told} TB/s)"
