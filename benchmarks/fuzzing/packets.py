"""A small whole Perfetto trace, packet by packet."""

from typing import Final

_KERNELS: Final = 24
_LAST_7_BITS: Final = 0x7F


def perfetto_packets() -> bytes:
    """Kernels on one track, as rocprofv3 writes them."""
    track = _text(2, "COMPUTE Agent-4 [0] QUEUE [0] ") + _number(1, 99)
    packets = [_message(60, track)]
    for at in range(_KERNELS):
        times = {"begin_ns": 1000 + 10 * at, "end_ns": 1008 + 10 * at, "corr_id": at}
        notes = b"".join(
            _message(4, _text(10, name) + _number(3, value))
            for name, value in times.items()
        )
        begin = _number(9, 1) + _number(11, 99) + _text(23, "gemm(float*)") + notes
        begin += _text(22, "kernel_dispatch")
        end = _number(9, 2) + _number(11, 99)
        for when, event in ((1000 + 10 * at, begin), (1008 + 10 * at, end)):
            clock = _number(8, when) + _number(58, 6) + _number(10, 1)
            packets.append(clock + _message(11, event))
    return b"".join(_message(1, packet) for packet in packets)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > _LAST_7_BITS:
        parts.append(value & _LAST_7_BITS | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())
