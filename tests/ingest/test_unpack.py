from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.unpack import CHUNK_BYTES, CUT, in_chunks, packing, unpacked
from layerscope.trace import TraceLog, TraceNote
from tests.ingest.packed import gzipped, zipped, zstd

TEXT = b"".join(b'{"ph": "X", "ts": %d}\n' % number for number in range(20_000))
CUT_NOTE = TraceNote(kind="dropped", what=CUT)

Pack = Callable[[bytes], bytes]
PACKS = pytest.mark.parametrize("pack", [gzipped, zstd])


def whole(data: bytes, log: TraceLog | None = None) -> bytes:
    """What `data` unpacks to."""
    return b"".join(unpacked(iter([data]), log or TraceLog()))


@PACKS
def test_packed_bytes_are_unpacked(pack: Pack) -> None:
    """All bytes come back, and nothing is noted."""
    log = TraceLog()
    assert whole(pack(TEXT), log) == TEXT
    assert log.notes() == ()


@PACKS
def test_parts_one_after_another_are_one(pack: Pack) -> None:
    """Tools append to archives; what was packed apart is read on."""
    log = TraceLog()
    assert whole(pack(TEXT) + pack(b"more") + pack(b""), log) == TEXT + b"more"
    assert log.notes() == ()


@PACKS
def test_what_precedes_a_cut_is_kept(pack: Pack) -> None:
    """An archive that ends early gives its beginning, and a note."""
    log = TraceLog()
    packed = pack(TEXT)
    found = whole(packed[: len(packed) * 2 // 3], log)
    assert len(found) > len(TEXT) // 8
    assert TEXT.startswith(found)
    assert log.notes() == (CUT_NOTE,)


def test_what_precedes_a_damaged_place_is_kept() -> None:
    """A fault in the bytes ends what is given, and is noted."""
    log = TraceLog()
    packed = gzipped(TEXT)
    middle = len(packed) // 2
    found = whole(packed[:middle] + b"\xff" * 64 + packed[middle + 64 :], log)
    assert len(found) > len(TEXT) // 8
    assert TEXT.startswith(found[: len(TEXT) // 8])
    assert log.notes() == (CUT_NOTE,)


def test_zeros_after_gzip_are_padding() -> None:
    """Tapes and some tools fill up with zeros."""
    log = TraceLog()
    assert whole(gzipped(TEXT) + b"\0" * 5000, log) == TEXT
    assert log.notes() == ()


def test_a_layer_within_a_layer_is_unpacked() -> None:
    """An archive that was packed again is usual; three times is not."""
    assert whole(gzipped(zstd(b"text"))) == b"text"
    assert whole(gzipped(gzipped(gzipped(b"text")))) == gzipped(b"text")


def test_the_first_file_of_a_cut_zip_is_read(tmp_path: Path) -> None:
    """Its table of files is at its end, and gone."""
    log = TraceLog()
    packed = zipped(tmp_path / "a.zip", ("a.json", TEXT), ("b", b"b")).read_bytes()
    assert whole(packed[:-150], log) == TEXT
    what = "zip archives without a table of files; the first file is read"
    assert log.notes() == (TraceNote(kind="repaired", what=what),)


@PACKS
def test_a_zip_within_an_archive_stays_packed(tmp_path: Path, pack: Pack) -> None:
    """It is whole, and so nothing that lost its table of files."""
    packed = zipped(tmp_path / "a.zip", ("a.json", TEXT)).read_bytes()
    log = TraceLog()
    assert whole(pack(packed), log) == packed
    assert b"".join(unpacked(iter([packed]), log, is_within=True)) == packed
    assert log.notes() == ()


@pytest.mark.parametrize("data", [b"", b"P", b"PK\x03\x04", b"PK\x03\x04" + b"\0" * 40])
def test_what_is_too_short_to_unpack_gives_nothing_of_it(data: bytes) -> None:
    """The beginning of an archive alone is no fault of the reader."""
    assert len(whole(data)) <= 1


@given(st.binary(max_size=60), st.integers(0, 2))
def test_no_bytes_raise(data: bytes, kind: int) -> None:
    """Whatever follows the first bytes of an archive, reading ends without an error."""
    whole((b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")[kind] + data)


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_chunks_are_the_same_bytes(pieces: list[bytes]) -> None:
    """Joining and cutting loses nothing."""
    assert b"".join(in_chunks(iter(pieces))) == b"".join(pieces)


def test_chunks_are_full_but_for_the_last() -> None:
    """None is longer than the bound, none empty."""
    pieces = [b"a" * (CHUNK_BYTES - 1), b"b" * (2 * CHUNK_BYTES), b"", b"c"]
    assert [len(chunk) for chunk in in_chunks(iter(pieces))] == [CHUNK_BYTES] * 3


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (gzipped(b"a"), "gzip"),
        (zstd(b"a"), "zstd"),
        (b"PK\x03\x04", "zip"),
        (b"PK\x05\x06", "zip"),
        (b"SQLite format 3\0", ""),
        (b"", ""),
    ],
)
def test_packing_is_told_by_the_first_bytes(start: bytes, name: str) -> None:
    """Names of files are not asked."""
    assert packing(start) == name
