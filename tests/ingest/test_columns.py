import polars as pl
import pytest

from layerscope.ingest import columns
from layerscope.ingest.columns import Columns, Names, whole
from layerscope.schema import INT
from layerscope.trace import TraceLog
from tests.ingest.reading import counts


def test_numbers_beyond_63_bits_become_null() -> None:
    """Ids of up to 64 bits and more occur, and cost no row."""
    rows = Columns({"id": INT, "at": INT})
    rows.add(2**64 - 1, 1)
    rows.add(2**70, None)
    rows.add(-5, 3)
    assert rows.frame().rows() == [(None, 1), (None, None), (-5, 3)]


def test_no_rows_are_a_frame_of_the_schema() -> None:
    """Types are right where nothing came."""
    assert Columns({"id": INT}).frame().schema == {"id": INT}


def test_rows_keep_their_order_over_many_batches() -> None:
    """Frames are joined in the order in which they were made."""
    rows = Columns({"id": INT})
    for number in range(50_001):
        rows.add(number)
    assert rows.frame()["id"].to_list() == list(range(50_001))


def test_names_come_back_by_their_numbers() -> None:
    """Each text has one number; null has none."""
    names = Names(TraceLog())
    given = pl.Series("name", ["b", None, "a", "b"])
    numbers = names.numbers(given)
    assert numbers.to_list() == [0, None, 1, 0]
    assert names.number("a") == 1
    assert names.texts(numbers).to_list() == given.to_list()


def test_no_names_are_all_null() -> None:
    """A table whose names are all missing is one of nulls."""
    names = Names(TraceLog())
    numbers = names.numbers(pl.Series("name", [None, None], dtype=pl.String))
    assert names.texts(numbers).to_list() == [None, None]


def test_a_kernel_has_one_name_in_all_tools() -> None:
    """The endings of descriptors are cut, and nothing else."""
    names = Names(TraceLog())
    given = ["gemm.kd", "gemm [clone .kd]", "gemm", "a.kd.b"]
    numbers = pl.Series("name", [names.number(name) for name in given])
    assert names.kernels(numbers).to_list() == ["gemm", "gemm", "gemm", "a.kd.b"]


def test_names_are_found_by_a_part() -> None:
    """A regular expression that is anywhere in a name finds its number."""
    names = Names(TraceLog())
    for name in ("cudaGraphLaunch", "cudaLaunchKernel", "hipgraphlaunch"):
        names.number(name)
    assert names.matching("(?i)GraphLaunch") == [0, 2]


def test_names_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """New names after too many bytes of them are counted, and share one text."""
    monkeypatch.setattr(columns, "_MOST_NAME_BYTES", 10)
    log = TraceLog()
    names = Names(log)
    numbers = [names.number(name) for name in ("kernel", "other", "third", "kernel")]
    assert names.texts(pl.Series(numbers)).to_list() == [
        "kernel",
        "(name not kept)",
        "(name not kept)",
        "kernel",
    ]
    assert counts(log.notes()) == {"names beyond the first 128 MiB of names": 2}


def test_whole_numbers_fit_a_column() -> None:
    """What does not is None."""
    assert [whole(each) for each in (None, 0, -3, 2**62, -(2**62), 2**62 - 1)] == [
        *(None, 0, -3, None, None),
        2**62 - 1,
    ]
