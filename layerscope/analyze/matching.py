"""Which kernels of two arms stand for each other, and what their difference means.

Only kernels of one region are matched. In each region, in this order:

1. *By role.* A role may name several things: ``gate_up+activation`` does both. Things
   that any kernel of either arm joins belong together, and the kernels that do them are
   a unit. In a unit with equally many kernels on both sides, these are pairs in their
   order: `SAME` where name, grid and block are equal, else `FASTER`. In a unit with
   more on one side, all are `MERGED`, whatever their code: which of them took over the
   work of which is not known.
2. *By code.* What is left and has no role, on at least one of the two sides, is paired
   in order with what has equal name, grid and block there: `SAME`.
3. *The rest.* A kernel with a role faces what is left without one on the other side
   (its own role is not there, or it would be in a unit); a kernel without a role faces
   all that is left there. Kernels that face nothing are `ADDED`; others are `REPLACED`.

Every kernel ends one gap. In a pair, and in order up to the smaller number in a unit
or a rest with kernels on both sides, gaps have a counterpart: `GAPS`. All others are
`LAUNCHES`. The rules do not change when the two arms change places, nor do the results.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import polars as pl

from layerscope.analyze.causes import Cause
from layerscope.analyze.typical import TypicalPass
from layerscope.schema import INT, TEXT, Schema

_LABELS: Final[Schema] = {
    "region": TEXT,
    "ordinal": INT,
    "cause": TEXT,
    "gap_cause": TEXT,
}


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Matching:
    """What the time of every kernel of a pass counts for, in both arms.

    Columns region (String), ordinal (Int64, as in `TypicalPass`), and as values of
    `Cause` what its duration counts for (cause) and its gap (gap_cause); sorted by the
    first two.
    """

    base: pl.DataFrame
    other: pl.DataFrame


class _Kernel(NamedTuple):
    ordinal: int
    things: frozenset[str]  # that its role names; empty where it has none
    code: tuple[object, ...]  # name, grid and block


_Kernels: TypeAlias = Sequence[_Kernel]
_Sides: TypeAlias = tuple[list[_Kernel], list[_Kernel]]


class _Labels:
    """Grows the labels of both sides of one region."""

    def __init__(self) -> None:
        self.sides: tuple[list[tuple[int, Cause, Cause]], ...] = ([], [])

    def add(self, cause: Cause, bases: _Kernels, others: _Kernels) -> None:
        """Durations count for `cause`; in order, gaps that have a counterpart match."""
        matched = min(len(bases), len(others))
        for labels, kernels in zip(self.sides, (bases, others), strict=True):
            labels += [
                (kernel.ordinal, cause, Cause.GAPS if i < matched else Cause.LAUNCHES)
                for i, kernel in enumerate(kernels)
            ]


def match(base: TypicalPass, other: TypicalPass) -> Matching:
    """Match the kernels of two arms, by the rules of this module.

    Args:
        base: a typical pass of the arm compared with.
        other: one of the arm compared.
    """
    sides = [_by_region(typical.kernels) for typical in (base, other)]
    rows: tuple[list[tuple[str, int, Cause, Cause]], ...] = ([], [])
    for region in sorted({*sides[0], *sides[1]}):
        labels = _match_region(sides[0][region], sides[1][region])
        for collected, found in zip(rows, labels.sides, strict=True):
            collected += [(region, *label) for label in sorted(found)]
    frames = [pl.DataFrame(side, schema=_LABELS, orient="row") for side in rows]
    return Matching(*frames)


def _by_region(kernels: pl.DataFrame) -> defaultdict[str, list[_Kernel]]:
    regions: defaultdict[str, list[_Kernel]] = defaultdict(list)
    for region, ordinal, role, *code in kernels.iter_rows():
        things = frozenset((role or "").split("+")) - {""}
        regions[region].append(_Kernel(ordinal, things, tuple(code)))
    return regions


def _match_region(bases: _Kernels, others: _Kernels) -> _Labels:
    labels = _Labels()
    left: _Sides = ([], [])
    for unit in _units(bases, others):
        if not (unit[0] and unit[1]):
            left[0].extend(unit[0])
            left[1].extend(unit[1])
        elif len(unit[0]) != len(unit[1]):
            labels.add(Cause.MERGED, *unit)
        else:
            for pair in zip(*unit, strict=True):
                is_same = pair[0].code == pair[1].code
                labels.add(
                    Cause.SAME if is_same else Cause.FASTER, *([k] for k in pair)
                )
    named = _split(left, has_role=True)
    bare = _split((list(bases), list(others)), has_role=False)
    _match_codes(labels, bare[0], bare[1])
    _match_codes(labels, bare[0], named[1])
    _match_codes(labels, named[0], bare[1])
    _match_rest(labels, bare, named)
    return labels


def _units(bases: _Kernels, others: _Kernels) -> Iterable[_Sides]:
    """Kernels with a role, by which things belong together."""
    for group in joined_things(kernel.things for kernel in (*bases, *others)):
        yield (
            [kernel for kernel in bases if kernel.things & group],
            [kernel for kernel in others if kernel.things & group],
        )


def joined_things(roles: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The things that roles name, those in one group that any role joins.

    Args:
        roles: the things that each of them names; of none, it says nothing.
    """
    groups: list[frozenset[str]] = []
    for things in roles:
        met = [group for group in groups if group & things]
        apart = [group for group in groups if not group & things]
        groups = [*apart, things.union(*met)] if things else groups
    return groups


def _split(sides: _Sides, *, has_role: bool) -> _Sides:
    """The kernels of either side that have a role, or have none, in order."""
    base, other = (
        sorted(kernel for kernel in side if bool(kernel.things) == has_role)
        for side in sides
    )
    return base, other


def _match_codes(labels: _Labels, bases: list[_Kernel], others: list[_Kernel]) -> None:
    """Take pairs of equal code out of both lists, the first with the first."""
    waiting: defaultdict[tuple[object, ...], list[_Kernel]] = defaultdict(list)
    for kernel in reversed(others):
        waiting[kernel.code].append(kernel)
    paired: tuple[set[int], set[int]] = (set(), set())
    for kernel in bases:
        if waiting[kernel.code]:
            found = waiting[kernel.code].pop()
            labels.add(Cause.SAME, [kernel], [found])
            paired[0].add(kernel.ordinal)
            paired[1].add(found.ordinal)
    # all at once: a step of a trace may have a hundred thousand kernels
    for kernels, ordinals in zip((bases, others), paired, strict=True):
        kernels[:] = [each for each in kernels if each.ordinal not in ordinals]


def _match_rest(labels: _Labels, bare: _Sides, named: _Sides) -> None:
    bases = bare[0] + (named[0] if bare[1] else [])
    others = bare[1] + (named[1] if bare[0] else [])
    cause = Cause.REPLACED if bases and others else Cause.ADDED
    labels.add(cause, sorted(bases), sorted(others))
    labels.add(Cause.ADDED, [] if bare[1] else named[0], [])
    labels.add(Cause.ADDED, [], [] if bare[0] else named[1])
