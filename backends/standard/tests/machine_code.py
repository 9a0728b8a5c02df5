"""What can be read from machine code for sm_90 without a disassembler."""

import struct
from typing import Final

_WAIT: Final = 0x82E
"""ACQBULK, which `griddepcontrol.wait` becomes: the low 12 bits of an instruction."""

_LOAD: Final = 0x981
"""LDG."""

_COPY: Final = 0xFAE
"""LDGSTS, which `cp.async` becomes."""

_BYTES: Final = 16
"""Of an instruction."""


def early_loads(image: bytes, kernel: str, *, with_copies: bool = True) -> int:
    """Loads and copies from global memory that stand before the first wait.

    Args:
        image: a cubin.
        kernel: one of its kernels, which has a wait.
        with_copies: whether copies into shared memory count.

    Raises:
        ValueError: it has none.
    """
    words = (word for (word,) in struct.iter_unpack("<Q8x", _text(image, kernel)))
    codes = [word & 0xFFF for word in words]
    before = codes[: codes.index(_WAIT)]
    counted = (_LOAD, _COPY) if with_copies else (_LOAD,)
    return sum(before.count(code) for code in counted)


def _text(image: bytes, kernel: str) -> bytes:
    """The instructions of a kernel, from a section of the ELF file."""
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQ", image, headers + size * number)
        for number in range(count)
    ]
    start_of_names = sections[names][4]
    wanted = f".text.{kernel}\0".encode()
    for name, *_, start, length in sections:
        at = start_of_names + name
        if image[at : at + len(wanted)] == wanted:
            return image[start : start + length // _BYTES * _BYTES]
    msg = f"there is no kernel {kernel}"
    raise ValueError(msg)
