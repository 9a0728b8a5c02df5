"""Experiments: edits of an arm's captured graph whose effect on its time is a cause.

A graph is edited, replayed without a profiler, and timed beside the graph as it was.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

CAPTURED: Final = "captured"
"""The name of the experiment that changes nothing: the graph as the arm made it."""

ALL: Final = "all"
"""Serialise every edge."""

PASSES: Final = "passes"
"""Serialise the edges between one pass and the next."""


_Fields: TypeAlias = dict[str, str | bool | int]

_WRITTEN: Final = (
    "serial, serial passes, serial REGION, programmatic, without REGION, REGION "
    "delayed by N ns, or REGION/ROLE delayed by N ns"
)


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed in a captured graph; nothing, where no field is set."""

    serial: str = ""
    """`ALL`, `PASSES` or a region: edges there become full ones, branches a chain."""

    programmatic: bool = False
    """Full edges into kernels declared safe become programmatic ones."""

    without: str = ""
    """The region whose nodes are disabled."""

    delay: str = ""
    """Before whose first kernel of a pass a kernel spins for `delay_ns`: a region, a
    role of its kernels behind a slash, or ``/ROLE`` in whatever region that is."""

    delay_ns: int = 0

    @property
    def name(self) -> str:
        """What frames and reports call it, such as ``serial, without moe``."""
        parts = []
        if self.serial:
            parts.append("serial" if self.serial == ALL else f"serial {self.serial}")
        if self.programmatic:
            parts.append("programmatic")
        if self.without:
            parts.append(f"without {self.without}")
        if self.delay:
            parts.append(f"{self.delay} delayed by {self.delay_ns} ns")
        return ", ".join(parts) or CAPTURED

    @classmethod
    def parse(cls, text: str) -> "Experiment":
        """The experiment that `name` calls so.

        Raises:
            ValueError: none is called so; says what may be written.
        """
        fields: _Fields = {}
        for part in text.split(", "):
            found = _fields(part)
            if fields.keys() & found.keys():
                msg = f"{text!r} says the same twice; ask for two experiments"
                raise ValueError(msg)
            fields |= found
        made = msgspec.convert(fields, cls)
        twin = cls(serial=made.serial, without=made.without)
        if made.without and (made != twin or made.serial not in ("", ALL)):
            msg = f"{text!r}: a region is left out of the captured graph or of its twin"
            raise ValueError(msg)
        return made


def _fields(part: str) -> _Fields:
    """What one part of an experiment's name sets."""
    match part.split():
        case ["serial"]:
            return {"serial": ALL}
        case ["serial", scope]:
            return {"serial": scope}
        case ["programmatic"]:
            return {"programmatic": True}
        case ["without", region]:
            return {"without": region}
        case [region, "delayed", "by", count, "ns"] if count.isdecimal():
            return {"delay": region, "delay_ns": int(count)}
    msg = f"{part!r} is no experiment; write {_WRITTEN}"
    raise ValueError(msg)


SERIAL: Final = Experiment(serial=ALL)
"""The serial twin: the same kernels, each after the end of the one before."""


def usual(regions: Iterable[str]) -> tuple[Experiment, ...]:
    """What is asked of every arm: the serial twin, and each region left out.

    A region is left out of the twin, where that is what its share should be, and of the
    captured graph, where it is what the region costs beside all others.

    Args:
        regions: those that may be left out of some arm.
    """
    left_out = [
        Experiment(serial=serial, without=region)
        for region in regions
        for serial in ("", ALL)
    ]
    return (SERIAL, *left_out)
