"""Many packets of one shape at once: Perfetto's library lays one out, numpy the rest.

A packet that differs from another only in numbers has the same bytes but for those of
the numbers, as long as each number takes as many bytes in both. Protocol buffers allow
that: a varint may be padded. So one packet is serialised, and its bytes are repeated
with other numbers in the same places.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = Mapping[str, int]
Columns: TypeAlias = Mapping[str, npt.NDArray[np.int64]]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_BITS: Final = 7  # of a number in each byte of a varint
_MORE: Final = 0x80  # set in all bytes of a varint but its last


@dataclass(frozen=True, slots=True)
class _Varint:
    """A number in so many bytes, seven bits in each."""

    width: int

    @property
    def low(self) -> int:
        """The lowest number that is serialised in this width."""
        return 0 if self.width == 1 else 1 << _BITS * (self.width - 1)

    @property
    def high(self) -> int:
        """The highest, which differs from the lowest in every byte."""
        return (1 << _BITS * self.width) - 1

    def byte(self, values: npt.NDArray[np.int64], place: int) -> Bytes:
        """The byte at `place` of every value."""
        bits = (values >> _BITS * place) & (_MORE - 1)
        is_last = place == self.width - 1
        return (bits if is_last else bits | _MORE).astype(np.uint8)


class _Fixed64(_Varint):
    """A number in eight bytes, the lowest first."""

    low = 0
    high = (1 << 64) - 1

    def byte(self, values: npt.NDArray[np.int64], place: int) -> Bytes:
        """The byte at `place` of every value."""
        return (values >> 8 * place).astype(np.uint8)


def repeat(
    build: Callable[[Numbers], bytes],
    columns: Columns,
    fixed64: frozenset[str] = frozenset(),
) -> Bytes:
    """What `build` gives for every row of `columns`, in their order.

    Args:
        build: serialises one row. Its bytes must depend on each number only where that
            number stands, as a varint or in the fields named in `fixed64`.
        columns: at least one number a row, none of them negative; all of one length.
        fixed64: the columns that stand in fields of type fixed64.

    Returns:
        UInt8, shape (rows, bytes of a row).

    Raises:
        ValueError: a number is negative, and would come out as another one.
    """
    constant: dict[str, int] = {}
    varying: dict[str, _Varint] = {}
    for name, values in columns.items():
        low, high = int(values.min()), int(values.max())
        if low < 0:
            msg = f"{name} has {low}; numbers of packets cannot be negative"
            raise ValueError(msg)
        if low == high:
            constant[name] = low
        else:
            width = -(-high.bit_length() // _BITS)
            varying[name] = _Fixed64(8) if name in fixed64 else _Varint(width)
    lowest = constant | {name: field.low for name, field in varying.items()}
    base = _bytes(build(lowest))
    count = len(next(iter(columns.values())))
    rows = np.repeat(base[np.newaxis], count, axis=0)
    for name, field in varying.items():
        differs = base != _bytes(build({**lowest, name: field.high}))
        places = np.flatnonzero(differs).reshape(-1, field.width).T
        for place, at in enumerate(places):
            rows[:, at] = field.byte(columns[name], place)[:, np.newaxis]
    return rows


def _bytes(message: bytes) -> Bytes:
    return np.frombuffer(message, dtype=np.uint8)
