"""Collectives in traces: what each is, and which of one rank is which of another."""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from layerscope.analyze.trace_communication import is_communication

Times: TypeAlias = npt.NDArray[np.int64]

SYNCHRONISING: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""Collectives that no rank can end before all have begun."""

SENDS: Final = "sends and receives"
"""They may be an all-to-all or from one rank to the next: only parameters tell."""

_KINDS: Final = (
    # letters of a name in small ones; the first that fits counts
    ("all-reduce", "allreduce|crossdevicereduce"),
    ("reduce-scatter", "reducescatter"),
    ("all-gather", "allgather"),
    ("all-to-all", "alltoall|all2all"),
    # NCCL runs an all-to-all as sends and receives in one kernel, and a pipeline's too
    (SENDS, "sendrecv|^i?send$|^i?recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
)
OTHER: Final = "other"

_FURTHEST: Final = 64
"""How many collectives more one rank may have at the begin of its trace."""

_ALIKE: Final = 0.95
"""Part of two sequences that must be of the same kinds, one by one."""

_NEAR_NS: Final = 1_000
"""Differences of spread that decide nothing: traces may count in microseconds."""


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth of equality
class GroupSequence:
    """The collectives of one group on one rank, in the order of their starts."""

    kinds: tuple[str, ...]
    starts_ns: Times
    ends_ns: Times

    @property
    def synchronising(self) -> npt.NDArray[np.bool_]:
        """Which are of `SYNCHRONISING`."""
        return np.array([kind in SYNCHRONISING for kind in self.kinds], dtype=np.bool_)


def unnamed_streams(kernels: pl.DataFrame) -> int:
    """On how many streams there are collectives whose group the file does not tell.

    Args:
        kernels: `schema.TRACE_KERNELS`, or more, of one device.
    """
    unnamed = kernels.filter(is_communication(), pl.col("group").is_null())
    return unnamed["stream"].n_unique()


def sequences(
    kernels: pl.DataFrame, *, by_stream: bool = False
) -> dict[str, GroupSequence]:
    """The collectives of one rank, by the name of their group.

    Args:
        kernels: `schema.TRACE_KERNELS`, or more, of one device.
        by_stream: whether collectives whose file tells no group are groups by their
            streams, such as "stream 7"; else they are one group of the empty name.
    """
    stream = pl.coalesce(pl.format("stream {}", "stream"), pl.lit(""))
    unnamed = stream if by_stream else pl.lit("")
    letters = pl.coalesce("collective", "name").str.to_lowercase()
    letters = letters.str.replace_all("[^a-z0-9]", "")
    kind = pl.lit(OTHER)
    for name, pattern in reversed(_KINDS):
        kind = pl.when(letters.str.contains(pattern)).then(pl.lit(name)).otherwise(kind)
    found = (
        kernels.filter(is_communication())
        .with_columns(_kind=kind, group=pl.coalesce("group", unnamed))
        .sort("group", "start_ns", "duration_ns", maintain_order=True)
    )
    return {
        str(group): GroupSequence(
            kinds=tuple(own["_kind"]),
            starts_ns=own["start_ns"].to_numpy(),
            ends_ns=(own["start_ns"] + own["duration_ns"]).to_numpy(),
        )
        for (group,), own in found.partition_by(
            "group", as_dict=True, maintain_order=True
        ).items()
    }


def shift_between(base: GroupSequence, other: GroupSequence) -> int | None:
    """By how many collectives `other` begins later than `base`.

    Collective j of `other` is collective j + shift of `base`. Of all shifts under which
    the two agree in kinds, that counts under which their ends differ most evenly; of
    those about as even the one with most collectives in both.

    Returns:
        None where the two agree nowhere.
    """
    least = max(1, min(len(base.kinds), len(other.kinds)) // 2)
    names = np.unique([*base.kinds, *other.kinds])
    codes = [np.searchsorted(names, each.kinds) for each in (base, other)]
    counted = base.synchronising
    found: list[tuple[float, int, int]] = []
    for shift in range(-_FURTHEST, _FURTHEST + 1):
        first, last = max(0, shift), min(len(base.kinds), len(other.kinds) + shift)
        if last - first < least:
            continue
        own, others = slice(first, last), slice(first - shift, last - shift)
        is_equal = codes[0][own] == codes[1][others]
        used = is_equal & counted[own]
        if is_equal.mean() < _ALIKE or not used.any():
            continue
        apart = (base.ends_ns[own] - other.ends_ns[others])[used]
        spread_ns = float(np.median(np.abs(apart - np.median(apart))))
        found.append((spread_ns, last - first, shift))
    if not found:
        return None
    best_ns, *_ = min(found)
    even = [each for each in found if each[0] <= 2 * best_ns + _NEAR_NS]
    _, _, shift = min(even, key=lambda each: (-each[1], abs(each[2]), each[2]))
    return shift
