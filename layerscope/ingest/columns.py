"""Columns of rows that come one by one, by the million, kept small as they come."""

from typing import Final

import polars as pl

from layerscope.schema import INT, Schema
from layerscope.trace import TraceLog

_BATCH: Final = 20_000  # rows that become a frame at once
_MOST_NAME_BYTES: Final = 128 << 20
DESCRIPTOR: Final = r"( \[clone \.kd\]|\.kd)$"
"""How names of AMD's descriptors of kernels end."""

_UNKEPT: Final = "(name not kept)"
_WHOLE: Final = 1 << 62  # no number that is told apart from others is larger


def whole(number: int | None) -> int | None:
    """`number` if it fits a column, else None."""
    return number if number is not None and -_WHOLE < number < _WHOLE else None


class Columns:
    """Rows of whole numbers; those beyond 63 bits become null."""

    def __init__(self, schema: Schema) -> None:
        """Begin without rows."""
        self._schema = schema
        self._rows: list[tuple[int | None, ...]] = []
        self._frames = [pl.DataFrame(schema=schema)]

    def add(self, *row: int | None) -> None:
        """One more row, a number a column."""
        self._rows.append(row)
        if len(self._rows) >= _BATCH:
            self._flush()

    def frame(self) -> pl.DataFrame:
        """All rows."""
        if self._rows:
            self._flush()
        return pl.concat(self._frames)

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True)
        self._frames.append(
            pl.DataFrame(
                [
                    pl.Series(name, column, dtype=dtype, strict=False)
                    for (name, dtype), column in zip(
                        self._schema.items(), columns, strict=True
                    )
                ]
            )
        )
        self._rows = []


class Names:
    """Numbers for texts that occur again and again, so that each is kept once.

    A trace has thousands of names in millions of rows. After 128 MiB of different ones,
    which no real trace has, new ones are not kept and the log says so.
    """

    def __init__(self, log: TraceLog) -> None:
        """Begin without any."""
        self._log = log
        self._numbers: dict[str, int] = {}
        self._bytes = 0

    def number(self, name: str) -> int:
        """The number of one name."""
        number = self._numbers.get(name)
        if number is None:
            self._bytes += len(name) + 1
            if self._bytes > _MOST_NAME_BYTES:
                self._log.add("dropped", "names beyond the first 128 MiB of names")
                name = _UNKEPT
            number = self._numbers.setdefault(name, len(self._numbers))
        return number

    def numbers(self, names: pl.Series) -> pl.Series:
        """The number of each of `names`, Int64; null stays null."""
        distinct = names.drop_nulls().unique(maintain_order=True)
        own = pl.Series([self.number(name) for name in distinct], dtype=INT)
        return names.replace_strict(distinct, own, default=None, return_dtype=INT)

    def texts(self, numbers: pl.Series) -> pl.Series:
        """The names of `numbers`, each kept in memory once."""
        return self._known().gather(numbers.cast(pl.UInt32)).alias(numbers.name)

    def kernels(self, numbers: pl.Series) -> pl.Series:
        """`texts` without the ending of AMD's descriptors of kernels.

        ``gemm``, ``gemm.kd`` and ``gemm [clone .kd]`` are one kernel, whose ending only
        some tools cut.
        """
        known = self._known().str.replace(DESCRIPTOR, "")
        return known.gather(numbers.cast(pl.UInt32)).alias(numbers.name)

    def matching(self, pattern: str) -> list[int]:
        """The numbers of the names in which the regular expression `pattern` is."""
        return self._known().str.contains(pattern).arg_true().to_list()

    def _known(self) -> pl.Series:
        return pl.Series(list(self._numbers), dtype=pl.String)
