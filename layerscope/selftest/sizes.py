"""How much planted arms read, and where the weights of a pass lie."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from layerscope.environment import DeviceFacts
from layerscope.selftest.cases import Chain
from layerscope.selftest.kernels import LOAD_BYTES, THREADS
from layerscope.study import ANCHOR_LENGTHS, L2_FACTOR

_MOST_BYTES: Final = 4_000_000_000
"""Of weights; where all passes together need more, some share theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What follows from the arms and the device."""

    blocks: int
    """Of every kernel: one for each processor."""

    sweeps: int
    """Loads that every thread makes to read a chunk of weights."""

    chunks: int
    """Chunks that a pass must read, the same in all arms."""

    extra: int
    """Chunks that a pass of some arm reads besides, at most."""

    slots: int
    """Passes that have weights of their own."""

    @property
    def threads(self) -> int:
        """Threads of a grid; also the elements of a row of the vector."""
        return self.blocks * THREADS

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk."""
        return self.sweeps * self.threads * LOAD_BYTES

    @property
    def pass_bytes(self) -> int:
        """Bytes of the weights of a pass."""
        return (self.chunks + self.extra) * self.chunk_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return self.slots * self.pass_bytes


def sizes_of(
    arms: Mapping[str, Chain], reads: int, device: DeviceFacts, passes: int
) -> Sizes:
    """Sizes at which the shortest replay of a study finds nothing in the cache.

    Args:
        arms: all make the same updates.
        reads: times the least that is needed for that.
        device: whose processors and cache these are.
        passes: of the longest replay.
    """
    base, *_ = arms.values()
    chunks = sum(chunks for launch in base for _, chunks in launch.work)
    needed_bytes = reads * L2_FACTOR * device.l2_bytes
    swept_bytes = (
        min(ANCHOR_LENGTHS) * chunks * device.processors * THREADS * LOAD_BYTES
    )
    sizes = Sizes(
        blocks=device.processors,
        sweeps=max(1, -(-needed_bytes // swept_bytes)),
        chunks=chunks,
        extra=max(sum(launch.extra for launch in arm) for arm in arms.values()),
        slots=passes,
    )
    return replace(sizes, slots=min(passes, max(1, _MOST_BYTES // sizes.pass_bytes)))
