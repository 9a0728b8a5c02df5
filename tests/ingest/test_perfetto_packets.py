import zlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from layerscope.ingest.perfetto_packets import Packets
from layerscope.trace import TraceLog
from tests.ingest.perfetto_packets import PacketFile
from tests.ingest.reading import counts

CUT = "packets cut off at the end of the file"
DAMAGED = "stretches of bytes that are no packets"
HOPELESS = "rests of files, which are too damaged"


def parsed(text: bytes) -> TracePacket | None:
    """A packet, as the reader makes it."""
    try:
        return TracePacket.FromString(text)
    except DecodeError:
        return None


def times(text: bytes, size: int = 1 << 20) -> tuple[list[int], dict[str, int]]:
    """The times of the packets in `text`, and what was noted."""
    log = TraceLog()
    chunks = (text[at : at + size] for at in range(0, len(text), size))
    found = [packet.timestamp for packet in Packets(parsed, log).read(chunks)]
    return found, counts(log.notes())


def file_of(count: int) -> bytes:
    """Packets at 1, 2, and so on, of about forty bytes each."""
    made = PacketFile(cleared=False)
    for at in range(1, count + 1):
        made.begin(at, 3, "a name of some length", "kernel")
    return made.bytes()


@pytest.mark.parametrize("size", [1, 5, 64, 1000])
def test_packets_come_whole_wherever_chunks_are_cut(size: int) -> None:
    """A header and what it announces may lie in several chunks."""
    assert times(file_of(9), size) == (list(range(1, 10)), {})


def test_a_packet_that_is_cut_off_is_counted() -> None:
    """All before it are read."""
    assert times(file_of(9)[:-3]) == (list(range(1, 9)), {CUT: 1})


def test_after_damage_the_next_packets_are_found() -> None:
    """A length that is wrong, or foreign bytes, cost what is near them."""
    text = file_of(9)
    step = len(text) // 9
    wrong = text[: 3 * step + 1] + b"\x05" + text[3 * step + 2 :]
    assert times(wrong) == ([1, 2, 3, 5, 6, 7, 8, 9], {DAMAGED: 1})
    foreign = text[: 3 * step] + b"\xff\xfe\xfd" + text[3 * step :]
    assert times(foreign, 50) == (list(range(1, 10)), {DAMAGED: 1})


def test_a_file_of_damage_is_given_up() -> None:
    """Bytes that look like packets again and again are not tried for ever."""
    found, notes = times(b"\n\x02\x0a\xff" * 200_000)
    assert (found, notes[HOPELESS]) == ([], 1)


def test_compressed_packets_are_unpacked() -> None:
    """They hold a trace of their own; what is damaged there is counted."""
    log = TraceLog()
    packets = Packets(parsed, log)
    deflated = zlib.compress(file_of(5))
    found = [packet.timestamp for packet in packets.unpacked(deflated)]
    assert (found, log.notes()) == ([1, 2, 3, 4, 5], ())
    assert list(packets.unpacked(b"no zlib")) == []
    assert counts(log.notes()) == {"compressed packets that are damaged": 1}


@given(st.binary(max_size=300), st.integers(1, 100))
def test_no_bytes_are_too_much(text: bytes, size: int) -> None:
    """Whatever comes, packets around it are read or counted."""
    found, notes = times(file_of(5) + text, size)
    assert found[:5] == [1, 2, 3, 4, 5]
    assert len(found) > 5 or notes or not text.strip(b"\0")
