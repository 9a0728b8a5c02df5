"""Whether a block of one kernel finds room on the processors beside those of another.

Sizes of a streaming multiprocessor are those of the CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability".
"""

from dataclasses import dataclass
from typing import Final

_WARP: Final = 32
_REGISTER_UNIT: Final = 256
"""Registers are handed out to a warp in units of so many."""

_RESERVED_BYTES: Final = 1024
"""Shared memory that every block holds beside its own, since sm_80."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one block holds, or what a processor has, of each resource."""

    threads: int
    registers: int
    shared_bytes: int
    blocks: int = 1

    def named(self) -> dict[str, int]:
        """Each resource by the name that people know it by."""
        return {
            "registers": self.registers,
            "shared memory": self.shared_bytes,
            "threads": self.threads,
            "blocks": self.blocks,
        }


PROCESSORS: Final = {
    "sm_80": Needs(2048, 65_536, 164 * 1024, 32),
    "sm_90": Needs(2048, 65_536, 228 * 1024, 32),
    "sm_100": Needs(2048, 65_536, 228 * 1024, 32),
}
"""What one processor has, by architecture; of others it is not known here."""


def block_needs(threads: int, registers_a_thread: int, shared_bytes: int) -> Needs:
    """What one block of a kernel holds.

    Args:
        threads: a block.
        registers_a_thread: as the compiler gave them.
        shared_bytes: static and dynamic.
    """
    warps = -(-threads // _WARP)
    a_warp = -(-registers_a_thread * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return Needs(warps * _WARP, warps * a_warp, shared_bytes + _RESERVED_BYTES)


def lacking(
    before: Needs, blocks: int, after: Needs, processor: Needs, processors: int
) -> tuple[str, ...]:
    """What a block of `after` finds too little of, beside the last ones of `before`.

    Blocks are taken to spread evenly, so that the emptiest processor decides. While
    several waves of `before` run, the last one is what a dependent kernel can join.

    Args:
        before: a block of the kernel that runs.
        blocks: of its grid.
        after: a block of the kernel that would start early.
        processor: what each has.
        processors: how many there are.

    Returns:
        Names of resources; none where there is room.
    """
    has, holds, wants = processor.named(), before.named(), after.named()
    most = max(1, min(has[name] // holds[name] for name in has if holds[name]))
    last = blocks % (most * processors)
    resident = last // processors if last else most
    return tuple(
        name for name in has if resident * holds[name] + wants[name] > has[name]
    )
