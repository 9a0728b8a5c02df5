"""What limits every arm, in words, and what to look at first."""

from collections.abc import Iterator, Mapping
from typing import Final

from layerscope.analyze.diagnosis import MOST, Diagnosis, Limit
from layerscope.analyze.early_starts import EarlyStart, Hindrance
from layerscope.report.document import Column, Fact, Kind, Table
from layerscope.report.region_names import region_name
from layerscope.units import format_ns, format_number, format_percent, format_things

_FIRST: Final = {
    Limit.MEMORY: "only fewer bytes help: smaller weights, or fewer of them",
    Limit.WAITING: "look at waiting before cutting kernels",
    Limit.LAUNCHES: "merge or drop the shortest kernels, or let them start early",
    Limit.COMPUTE: "make kernels better before their order",
    Limit.COMMUNICATION: "hide or shorten what ranks tell each other",
}
_KERNELS: Final = "kernels"
_EARLY: Final = (
    Column("region", "region", Kind.REGION),
    Column("kernel", "kernel", Kind.TEXT),
    Column("nodes", "a pass", Kind.COUNT),
    Column("lead_ns", "lead", Kind.TIME),
    Column("why", "why not early", Kind.TEXT),
)
_NAME_LENGTH: Final = 40


def verdicts(diagnoses: Mapping[str, Diagnosis]) -> Iterator[Fact]:
    """One line an arm: its limit, the evidence, and what to do first."""
    for arm, found in diagnoses.items():
        first = found.reason or _FIRST[found.limit]
        if found.limit is Limit.MEMORY and _is_far(found):
            others = (part for part in found.parts if part is not Limit.MEMORY)
            then = next(others, Limit.UNKNOWN)
            first = f"bytes are its largest part; after them comes {then}"
        if found.limit is Limit.COMPUTE and found.furthest:
            first += f", those of {region_name(found.furthest)} above all"
        evidence = "; ".join(_evidence(found))
        told = f" ({evidence})" if evidence else ""
        yield Fact(f"limit of {arm}", f"{found.limit}: {first}{told}")


def _is_far(found: Diagnosis) -> bool:
    """Whether an arm takes so much longer than its bytes that more than they help."""
    read_ns = found.limits.one_read_ns
    return read_ns is not None and found.anchor_ns > MOST * read_ns


def _evidence(found: Diagnosis) -> Iterator[str]:
    recorded, held = found.recorded, found.limits
    for bound_ns, name in (
        (held.one_read_ns, "one read of its bytes"),
        (held.legal_ns, "the standard chain's legal early start"),
    ):
        if bound_ns:
            yield f"{format_number(found.anchor_ns / bound_ns, 2)} times {name}"
    if recorded is not None:
        shares = [
            f"{_KERNELS if part is Limit.UNKNOWN else part} "
            f"{format_percent(value / recorded.pass_ns)}"
            for part, value in found.parts.items()
            if value
        ]
        yield f"of a profiled pass: {', '.join(shares)}"
        short = format_number(recorded.short_kernels, 0)
        kernels = format_things(round(recorded.kernels), "kernel")
        yield f"{short} of {kernels} no longer than a launch"
    if held.longer_ns and held.benefit_ns is not None:
        yield (
            f"kernels take {format_ns(held.longer_ns)} longer than one by one, for an "
            f"overlap of {format_ns(held.benefit_ns)}"
        )


def early_tables(diagnoses: Mapping[str, Diagnosis]) -> Iterator[Table]:
    """How early kernels behind programmatic edges start, of every arm that has some."""
    for arm, found in diagnoses.items():
        if found.early:
            yield Table(
                title=f"early starts of {arm}, by programmatic edges",
                columns=_EARLY,
                rows=tuple(
                    (
                        each.region,
                        _short(each.kernel),
                        each.nodes,
                        each.lead_ns,
                        _why(each),
                    )
                    for each in found.early
                ),
            )


def early_notes(diagnoses: Mapping[str, Diagnosis]) -> Iterator[str]:
    """What a lead is, where some are told."""
    if any(found.early for found in diagnoses.values()):
        yield (
            "lead: how long before the end of what ran before a kernel starts, median; "
            "what it does until then is launching, early work, or waiting"
        )


def _why(found: EarlyStart) -> str:
    if found.hindrance is Hindrance.ROOM:
        lacks = " or ".join(found.lacks)
        return f"no {lacks} left beside {_short(found.before)}"
    if found.hindrance is Hindrance.TRIGGER:
        return f"{_short(found.before)} triggers late"
    return found.hindrance


def _short(name: str) -> str:
    """A kernel's name without template arguments and parameters."""
    bare = name.removeprefix("void ").partition("<")[0].partition("(")[0]
    return bare if len(bare) <= _NAME_LENGTH else f"{bare[: _NAME_LENGTH - 1]}…"
