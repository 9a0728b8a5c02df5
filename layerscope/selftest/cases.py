"""What is planted: two arms that differ in one thing, and the lines it must land on.

A pass is a chain of small kernels in four regions. Each reads weights that no cache
holds, and then updates a vector that the next one updates again, so that kernels which
run in another order, or not after one another, give another result. Both arms of a case
make the same updates.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from layerscope.analyze.causes import Cause
from layerscope.regions import Region

BASE: Final = "base"
OTHER: Final = "other"
"""The arms of a case, by name."""


class Start(StrEnum):
    """When a kernel reads its weights, and when the next one may begin."""

    PLAIN = "plain"
    """After the end of the one before."""

    STOCK = "stock"
    """Programmatic: it waits before it reads anything, and triggers at its end."""

    LATE = "late"
    """Programmatic: it reads its weights, then waits, and triggers at its end."""

    EARLY = "early"
    """Programmatic: it triggers, reads its weights, and then waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel of a pass."""

    region: str
    role: str
    start: Start = Start.PLAIN

    chunks: int = 1
    """Chunks of weights that it reads for each update."""

    updates: int = 1
    """How often it updates the vector."""

    extra: int = 0
    """Chunks that it reads besides, and whose values do not count."""

    slow: bool = False
    """Whether it has one load in flight instead of several."""

    row: int = 0
    """Which of the two rows of the vector it updates."""

    beside: bool = False
    """Whether it runs beside the kernel before it, on a stream of its own."""

    writes: int = 0
    """Writes of the stream itself after it, all in one node, which leaves no record."""

    spin_ns: int = 0
    """How long it spins at its end."""

    @property
    def kernel(self) -> str:
        """The name of its code; kernels of one name differ by their arguments alone."""
        if self.slow:
            return "layerscope_read_slowly"
        if self.extra:
            return "layerscope_read_more"
        return "layerscope_read" if self.updates == 1 else "layerscope_read_merged"

    @property
    def work(self) -> list[tuple[int, int]]:
        """(row, chunks) of every update, in order."""
        return [(self.row, self.chunks)] * self.updates


Chain: TypeAlias = tuple[Launch, ...]
"""The kernels of a pass, in the order of their launches."""


class Demand(StrEnum):
    """What the ledger of a case must show."""

    SAVING = "saving"
    """The other arm is faster, and what it saves is on the expected lines."""

    BALANCE = "balance"
    """The expected lines are large and cancel: the arms take the same time."""

    LITTLE = "little"
    """Hardly any change, although kernels overlap."""

    NOTHING = "nothing"
    """No difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Two arms that differ in one thing."""

    name: str
    difference: str
    """What the other arm does differently, in words."""

    base: Chain
    other: Chain
    expected: frozenset[Cause]
    """The lines on which the change must land."""

    demand: Demand = Demand.SAVING
    reads: int = 1
    """Times the least that a replay must read to find nothing in the cache."""

    @property
    def arms(self) -> dict[str, Chain]:
        """Both arms by name, in the order of the study."""
        return {BASE: self.base, OTHER: self.other}


REGIONS: Final = (
    Region.ATTENTION,
    Region.O_PROJ_ALL_REDUCE,
    Region.MOE,
    Region.OTHER,
)
ROLES: Final = ("first", "second")

_FEWER: Final = 20
"""Kernels that one arm of the case ``fewer`` has less than the other."""

_MERGED_FEW: Final = 4

_WRITES: Final = 32
"""Writes of the stream that make a gap; in a probe of an H200 they took 25 µs, and
CUPTI added 0.1 to 0.7 to a node of 1 to 32. To timed events it adds more, empty nodes
are dropped from a graph, and what untimed events or disabled kernels take differs from
capture to capture. Kernels alone will not do: where graphs launch them fast, there is
no gap between them."""


_SMALL: Final = Launch(region=Region.MOE, role="tail", writes=_WRITES)
"""A kernel of the case ``fewer``."""


def uniform(**fields: Any) -> Chain:  # noqa: ANN401 (any field of a launch)
    """Two kernels in each region, all with `fields`."""
    return tuple(
        Launch(region=region, role=role, **fields)
        for region in REGIONS
        for role in ROLES
    )


def with_change(
    chain: Chain,
    index: int,
    **fields: Any,  # noqa: ANN401 (any field of a launch)
) -> Chain:
    """`chain` with other `fields` of its launch `index`."""
    return (*chain[:index], replace(chain[index], **fields), *chain[index + 1 :])


def pairs(*regions: str) -> Chain:
    """Two kernels of one role in each of `regions`."""
    return tuple(Launch(region=region, role="both") for region in regions for _ in "12")


def merged(*regions: str) -> Chain:
    """One kernel in each of `regions`, which does the work of both of `pairs`."""
    return tuple(Launch(region=region, role="both", updates=2) for region in regions)


def slow_pair(region: str) -> Chain:
    """Two slow kernels in `region`, each for a row of its own."""
    return tuple(
        Launch(region=region, role=role, slow=True, chunks=2, row=row)
        for row, role in enumerate(ROLES)
    )


def overlaps(chain: Chain) -> bool:
    """Whether any kernel of `chain` may run beside another; then its twin differs."""
    return any(one.beside or one.start is not Start.PLAIN for one in chain)


def _many() -> Chain:
    """One kernel in each region, and in one a tail of small ones."""
    ends = [Launch(region=region, role="first") for region in REGIONS]
    return (*ends[:3], *([_SMALL] * (_FEWER + _MERGED_FEW)), ends[3])


def _few() -> Chain:
    """The same work with a tail of fewer kernels, which spin for a time to be set."""
    each = (_FEWER + _MERGED_FEW) // _MERGED_FEW
    slow = replace(_SMALL, updates=each, spin_ns=1)
    ends = [launch for launch in _many() if launch.role != "tail"]
    return (*ends[:3], *([slow] * _MERGED_FEW), ends[3])


_CHAIN: Final = uniform()
_PLACE: Final = 4  # of what is changed in one kernel: the first of the third region
_SLOW_PAIR: Final = (*_CHAIN[:_PLACE], *slow_pair(Region.MOE), *_CHAIN[_PLACE + 2 :])
_LARGE_PAIR: Final = tuple(Launch(region=Region.MOE, role=role) for role in ROLES)

CASES: Final = (
    Case(
        name="trigger",
        difference="kernels trigger at their start, not at their end",
        base=uniform(start=Start.LATE),
        other=uniform(start=Start.EARLY),
        expected=frozenset({Cause.OVERLAP}),
    ),
    Case(
        name="early",
        difference="kernels start early, not as stock ones",
        base=uniform(start=Start.STOCK),
        other=uniform(start=Start.EARLY),
        expected=frozenset({Cause.OVERLAP}),
    ),
    Case(
        name="branches",
        difference="two kernels are parallel branches",
        base=_SLOW_PAIR,
        other=with_change(_SLOW_PAIR, _PLACE + 1, beside=True),
        expected=frozenset({Cause.OVERLAP}),
    ),
    Case(
        name="merge",
        difference="two kernels are one, in every region",
        base=pairs(*REGIONS),
        other=merged(*REGIONS),
        expected=frozenset({Cause.LAUNCHES, Cause.MERGED}),
    ),
    Case(
        name="less",
        difference="one kernel reads less",
        base=with_change(_CHAIN, _PLACE, extra=6),
        other=_CHAIN,
        expected=frozenset({Cause.FASTER}),
    ),
    Case(
        name="swap",
        difference="one kernel is replaced by a faster one",
        base=with_change(_CHAIN, _PLACE, chunks=4, slow=True),
        other=with_change(_CHAIN, _PLACE, chunks=4),
        expected=frozenset({Cause.FASTER}),
    ),
    Case(
        name="gap",
        difference=f"{_WRITES} fewer writes of the stream between two kernels",
        base=with_change(_CHAIN, _PLACE - 1, writes=_WRITES),
        other=_CHAIN,
        expected=frozenset({Cause.GAPS}),
    ),
    Case(
        name="fewer",
        difference=(
            f"{_FEWER} fewer kernels, with {_WRITES} writes of the stream after each, "
            "which together take as long"
        ),
        base=_many(),
        other=_few(),
        expected=frozenset({Cause.LAUNCHES, Cause.MERGED}),
        demand=Demand.BALANCE,
    ),
    Case(
        name="bandwidth",
        difference="of two large reads, the second begins with the first",
        # Not from stock launches: those are slower here than plain ones, by far more
        # than overlap is worth.
        base=_LARGE_PAIR,
        other=(
            replace(_LARGE_PAIR[0], start=Start.EARLY),
            replace(_LARGE_PAIR[1], start=Start.LATE),
        ),
        expected=frozenset({Cause.OVERLAP}),
        demand=Demand.LITTLE,
        reads=16,
    ),
    Case(
        name="nothing",
        difference="nothing",
        base=_CHAIN,
        other=_CHAIN,
        expected=frozenset(),
        demand=Demand.NOTHING,
    ),
)
"""Every planted cause by itself."""
