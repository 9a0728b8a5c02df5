"""Places in a stretch of kernels, named by what is there: "last gemm before last norm".

A place is the first or the last kernel of a role, alone or before or after another
place. Kernels that are joined to one another share a place.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import polars as pl

_STEP: Final = re.compile(r"(first|last) ([A-Za-z_]+)")
_SIDE: Final = re.compile(r" (before|after) ")


class Cut(NamedTuple):
    """The first or last kernel of a role, on one side of another place."""

    edge: str  # "first" or "last"
    role: str
    side: str = ""  # "before" or "after"; empty where there is no other place
    of: "Cut | None" = None

    @property
    def text(self) -> str:
        """As tables write it."""
        return " ".join(each for each in self._words() if each)

    def _words(self) -> Iterator[str]:
        yield from (self.edge, self.role, self.side)
        if self.of:
            yield self.of.text

    def chain(self) -> tuple["Cut", ...]:
        """The place and those that it is found by, the last of them first."""
        return (*(self.of.chain() if self.of else ()), self)


def parse_cut(text: str) -> Cut | None:
    """The place that `text` names, or None where it names none."""
    words = _SIDE.split(text)
    cut, side = None, ""
    for place in range(len(words) - 1, -1, -2):
        step = _STEP.fullmatch(words[place])
        if step is None:
            return None
        cut = Cut(step[1], step[2], side, cut)
        side = words[place - 1] if place else ""
    return cut


def with_cuts(kernels: pl.DataFrame, cuts: Iterable[Cut]) -> pl.DataFrame:
    """Where each place lies in each stretch.

    Args:
        kernels: columns stretch and place (integers) and part (String): the role that
            counts, or several joined by ``+``, or null.
        cuts: the places.

    Returns:
        `kernels` and, for every place, a column of its text: its `place`, or null
        where its stretch has no such kernel.
    """
    steps = dict.fromkeys(step for cut in cuts for step in cut.chain())
    for step in sorted(steps, key=lambda step: len(step.chain())):
        chosen = pl.col("part").str.contains(rf"(^|\+){step.role}(\+|$)")
        if step.of is not None:
            other = pl.col(step.of.text)
            is_before = step.side == "before"
            chosen &= pl.col("place") < other if is_before else pl.col("place") > other
        places = pl.when(chosen).then("place")
        found = places.min() if step.edge == "first" else places.max()
        kernels = kernels.with_columns(found.over("stretch").alias(step.text))
    return kernels
