"""The draft in one cooperative launch, w2 on the chip as far as there is room."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import torch

from layerscope.errors import BackendError
from layerscope.layers.draft import DraftPass, DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.plugin import Waits
from layerscope.regions import role
from layerscope_nvidia_mega.norm_product import PACKAGE
from layerscope_standard import draft as standard
from layerscope_standard.kernels import Kernel, Launch, Operation
from layerscope_standard.splitting import TILE_OUTPUTS
from layerscope_standard.workshop import Workshop, suffix

ROLE: Final = "tokens"
"""Of the kernel, whose blocks wait for each other."""

MOST_TOKENS: Final = 16

_FEWEST_WARPS: Final = 8
_MOST_WARPS: Final = 12
"""Of a block: with more, a thread has too few registers for a tile."""

_MOST_KEPT: Final = 6
"""Tiles of a warp in shared memory; each takes registers too."""

_MOST_VOCABULARY: Final = 1 << 20
"""Tokens that code/draft_slots.cuh can tell apart."""

_ROW_PADDING: Final = 64
_STATE_BYTES: Final = 16
_ELEMENT_BYTES: Final = 2  # of a row of w1
_NS: Final = 1_000_000_000


def fits(spec: DraftSpec) -> bool:
    """Whether the kernel takes the draft."""
    return (
        standard.fits(spec)
        and spec.tokens <= MOST_TOKENS
        and spec.vocab_slice <= _MOST_VOCABULARY
    )


@dataclass(frozen=True, slots=True)
class Room:
    """What a device has for blocks that run together."""

    processors: int
    shared_bytes: int
    """The most a block may have."""

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """Of a GPU.

        Raises:
            BackendError: the driver does not tell.
        """
        from cuda.bindings import runtime

        properties = torch.cuda.get_device_properties(device)
        with torch.cuda.device(device):
            status, shared_bytes = runtime.cudaDeviceGetAttribute(
                runtime.cudaDeviceAttr.cudaDevAttrMaxSharedMemoryPerBlockOptin,
                torch.cuda.current_device(),
            )
        if status.value:
            msg = f"nvidia_mega: asking for shared memory failed: {status.name}"
            raise BackendError(msg)
        return cls(properties.multi_processor_count, shared_bytes)


@dataclass(frozen=True)
class Placement:
    """Where the tiles of w2 are, of 16 tokens of the vocabulary each."""

    spec: DraftSpec
    room: Room

    @cached_property
    def tiles(self) -> int:
        """Of the vocabulary."""
        return -(-self.spec.vocab_slice // TILE_OUTPUTS)

    @cached_property
    def blocks(self) -> int:
        """One a processor, each with a tile or more."""
        return min(self.room.processors, self.tiles)

    @cached_property
    def warps(self) -> int:
        """Of a block: one for each of its tiles, if possible, and for each request."""
        return min(_MOST_WARPS, max(_FEWEST_WARPS, self._tiles_of_a_block))

    @cached_property
    def tile_bytes(self) -> int:
        """Of one tile, without its scales."""
        return TILE_OUTPUTS * self.spec.rank * self.spec.weight_dtype.bytes

    @cached_property
    def fixed_bytes(self) -> int:
        """Shared memory beside tiles, as code/draft_once.cu lays it out."""
        row = self.spec.rank * _ELEMENT_BYTES + _ROW_PADDING
        return standard.MOST_REQUESTS * (row + 8 * self.warps) + _STATE_BYTES

    @cached_property
    def is_wide(self) -> bool:
        """Whether tiles of fp8 stay on the chip as bfloat16."""
        is_fp8 = self.spec.weight_dtype is DType.FLOAT8_E4M3
        return is_fp8 and self._fitting(2 * self.tile_bytes) >= self._beside_registers

    @cached_property
    def kept(self) -> int:
        """Tiles that a block keeps in shared memory, at most."""
        return min(self._beside_registers, self._fitting(self.kept_tile_bytes))

    @property
    def kept_tile_bytes(self) -> int:
        """Shared memory of a tile."""
        return self.tile_bytes * (2 if self.is_wide else 1)

    @property
    def _tiles_of_a_block(self) -> int:
        return -(-self.tiles // self.blocks)

    @property
    def _beside_registers(self) -> int:
        """Tiles of a block for which there are no registers."""
        return max(0, self._tiles_of_a_block - self.warps)

    def _fitting(self, tile_bytes: int) -> int:
        room = (self.room.shared_bytes - self.fixed_bytes) // tile_bytes
        return max(0, min(room, _MOST_KEPT * self.warps))

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return self.fixed_bytes + self.kept * self.kept_tile_bytes

    @cached_property
    def passing(self) -> int:
        """Tiles that are read again at every token, of all blocks."""
        passing = 0
        for first in range(self.blocks * self.warps):
            warp = first // self.blocks
            count = len(range(first, self.tiles, self.blocks * self.warps))
            fitting = len(range(warp, self.kept, self.warps))
            in_turns = count - min(fitting, max(0, count - 1))
            passing += in_turns if in_turns > 1 else 0  # a single one stays
        return passing


class DraftStep:
    """The draft of one problem; see `plugin.DraftStep`."""

    def __init__(
        self,
        problem: DraftProblem,
        workshop: Workshop,
        waits: Waits,
        placement: Placement,
    ) -> None:
        """Prepare the launches of all passes.

        Raises:
            BackendError: the kernel cannot be compiled or loaded.
        """
        spec = problem.spec
        self._spec, self._workshop, self._waits = spec, workshop, waits
        self.placement = placement
        self.w2_reads = spec.tokens if placement.passing else 1
        # Zeros, for memory of a draft before might hold what this one waits for.
        shape = spec.tokens, spec.requests, placement.blocks
        self.slots = torch.zeros(shape, dtype=torch.int64, device=problem.device)
        self.launches = torch.zeros(1, dtype=torch.int32, device=problem.device)
        workshop.constants.extend((self.slots, self.launches))
        self.operations = [self._operation(each) for each in problem.passes]

    def _operation(self, each: DraftPass) -> Operation:
        values, scales = self._workshop.operand(each.w2)
        spec, placement = self._spec, self.placement
        launch = Launch(
            self.kernel(suffix(each.w2)),
            (placement.blocks, 1, 1),
            (
                values,
                scales,
                each.w1,
                each.base,
                each.previous,
                each.chosen,
                self.slots,
                self.launches,
                self._waits.abort,
                round(self._waits.deadline_s * _NS),
                spec.requests,
                spec.tokens,
                spec.vocab_slice,
                placement.kept,
            ),
            placement.shared_bytes,
            cooperative=True,
        )
        return Operation(ROLE, self._workshop.launcher.prepare(launch))

    def kernel(self, ending: str) -> Kernel:
        """The kernel for weights of the type that `ending` names."""
        placement = self.placement
        return Kernel(
            "draft_once",
            f"draft_tokens_{ending}",
            32 * placement.warps,
            (
                ("RANK", self._spec.rank),
                ("WARPS", placement.warps),
                ("BLOCKS", placement.blocks),
                ("KEPT", -(-placement.kept // placement.warps)),
                ("TURNS", int(placement.passing > 0)),
                ("WIDE", int(placement.is_wide)),
                *self._workshop.turns.get(ROLE, ()),
            ),
            PACKAGE,
            ("draft_slots.cuh", "draft_tiles.cuh", "mega_primitives.cuh"),
        )

    def run(self, pass_index: int) -> None:
        """Enqueue all tokens of pass `pass_index`."""
        with role(ROLE):
            self.operations[pass_index].enqueue()

    def touched_bytes(self) -> int | None:
        """Bytes that one pass reads and writes: tiles that do not stay again and again.

        With the rows of w1 that every block's best would need, which are fetched before
        it is known whose is needed.
        """
        spec, placement = self._spec, self.placement
        again = (spec.tokens - 1) * placement.passing * placement.tile_bytes
        row = spec.rank * spec.dtype.bytes
        ahead = (spec.tokens - 1) * spec.requests * (placement.blocks - 1) * row
        return spec.required_bytes + again + ahead


class BuiltDraft:
    """A draft built for one problem; see `plugin.BuiltDraft`."""

    def __init__(
        self, problem: DraftProblem, workshop: Workshop, waits: Waits, room: Room
    ) -> None:
        """Build the draft of `problem`, where the kernel takes it.

        Raises:
            BackendError: the kernel cannot be compiled or loaded.
        """
        self._spec = problem.spec
        self.workshop = workshop
        self._step: DraftStep | None = None
        if fits(problem.spec):
            placement = Placement(problem.spec, room)
            self._step = DraftStep(problem, workshop, waits, placement)

    @property
    def device_bytes(self) -> int:
        """Of what blocks hand to each other."""
        return self.workshop.device_bytes

    def plan(self, spec: DraftSpec) -> DraftStep | None:
        """The step if `spec` is the problem's own and the kernel takes it."""
        return self._step if spec == self._spec else None
