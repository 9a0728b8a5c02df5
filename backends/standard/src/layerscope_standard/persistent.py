"""The candidate ``persistent``: experts by blocks that stay; see code/persistent.cu."""

import math
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from layerscope.errors import BackendError
from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.selection import PERSISTENT, Choice
from layerscope_standard.splitting import TILE_OUTPUTS
from layerscope_standard.workshop import Workshop, stored, suffix

_WARPS: Final = 8
_DEPTH: Final = 5
"""Stages of a warp on their way. Two kernels of this file then fit on a processor, so
that the second has its first weights when the first ends."""

_STAGE_BYTES: Final = 128  # of a row of weights
_STAGE_ROWS: Final = 16
_ROW_PADDING: Final = 64
_GATED_OUTPUTS: Final = 8
_TILE_SUMS: Final = 160
_TABLE_WORDS: Final = (4, 12)  # of the head, and of an entry
_MOST_SHARED_BYTES: Final = 227 << 10
_FILE: Final = "persistent"


@dataclass(frozen=True, slots=True)
class Steady:
    """What both kernels have in common."""

    workshop: Workshop
    table: Tensor
    """int32 [4 + 12 * most_experts]; see code/table.cuh."""

    active: Tensor
    """[rows * top_k, width]: silu(gate) * up."""

    rows: int
    top_k: int
    most_experts: int
    is_routed: bool
    """Whether other kernels write the table."""

    def gate_up(
        self,
        choice: Choice,
        weight: Tensor | BlockScaled,
        hidden: Tensor,
        following: tuple[Choice, Tensor | BlockScaled],
    ) -> Operation:
        """Write `active` from `hidden` [rows, inputs].

        Args:
            choice: how the kernel is cut.
            weight: [experts, 2 * width, inputs].
            hidden: what is multiplied.
            following: choice and weight of ``down``, which it may bring into the cache.

        Raises:
            BackendError: the rows do not fit into shared memory.
        """
        values, scales = stored(weight)
        inputs, width = values.shape[-1], self.active.shape[-1]
        stages = _stages(weight)
        planned = planned_share(
            self.most_experts * width // _GATED_OUTPUTS,
            stages,
            self.workshop.processors,
        )
        share = choice.option("share", planned)
        sums = 2 * _WARPS * _TILE_SUMS if share > 1 else 0
        depth, shared = self._memory("gate_up", choice, weight, (self.rows, sums))
        later, _ = stored(following[1])
        return self.workshop.operation(
            "gate_up",
            Kernel(
                _FILE,
                f"steady_gate_up_{suffix(weight)}",
                32 * _WARPS,
                self._defines(depth, share),
            ),
            (self.workshop.processors, 1, 1),
            (
                values,
                scales,
                hidden,
                self.table,
                self.active,
                later,
                width,
                inputs,
                self.top_k,
                self.rows,
                self.most_experts,
                math.prod(later.shape[-2:]) * later.element_size(),
                self._ahead(*following),
            ),
            shared,
        )

    def down(
        self,
        choice: Choice,
        weight: Tensor | BlockScaled,
        given: tuple[Tensor, Tensor],
        out: Tensor,
    ) -> Operation:
        """Write `out` [rows, outputs].

        Args:
            choice: how the kernel is cut.
            weight: [experts, outputs, width].
            given: float32 [rows, top_k], the shares of the experts; and the residual.
            out: what is written.

        Raises:
            BackendError: the rows do not fit into shared memory.
        """
        values, scales = stored(weight)
        row_weights, residual = given
        outputs = out.shape[-1]
        depth, shared = self._down_memory(choice, weight)
        return self.workshop.operation(
            "down+sum",
            Kernel(
                _FILE,
                f"steady_down_{suffix(weight)}",
                32 * _WARPS,
                self._defines(depth, 1),
            ),
            (outputs // TILE_OUTPUTS, 1, 1),
            (
                values,
                scales,
                self.active,
                self.table,
                row_weights,
                residual,
                out,
                self.rows,
                self.top_k,
                outputs,
                values.shape[-1],
                self._down_parts(choice, weight),
                self.most_experts,
            ),
            shared,
        )

    def _ahead(self, choice: Choice, weight: Tensor | BlockScaled) -> int:
        """Experts all of whose weights ``down`` asks for at once."""
        if choice.candidate != PERSISTENT:
            return 0
        depth, _ = self._down_memory(choice, weight)
        return _WARPS * (depth // _stages(weight))

    def _down_parts(self, choice: Choice, weight: Tensor | BlockScaled) -> int:
        planned = -(-_WARPS // self.most_experts)
        return min(choice.option("parts", planned), _stages(weight))

    def _down_memory(
        self, choice: Choice, weight: Tensor | BlockScaled
    ) -> tuple[int, int]:
        pairs, parts = self.rows * self.top_k, self._down_parts(choice, weight)
        floats = pairs + parts * pairs * (TILE_OUTPUTS + 4)
        return self._memory("down", choice, weight, (pairs, floats))

    def _defines(self, depth: int, share: int) -> tuple[tuple[str, int], ...]:
        return (("DEPTH", depth), ("SHARE", share), ("ROUTED", int(self.is_routed)))

    def _memory(
        self,
        role: str,
        choice: Choice,
        weight: Tensor | BlockScaled,
        counts: tuple[int, int],
    ) -> tuple[int, int]:
        """Depth and bytes of shared memory, for rows and floats beside the ring."""
        rows, floats = counts
        is_fp8 = isinstance(weight, BlockScaled)
        pitch = _stages(weight) * _STAGE_BYTES * (2 if is_fp8 else 1) + _ROW_PADDING
        head, entry = _TABLE_WORDS
        fixed = (rows + 1) * pitch + 4 * (rows + floats)
        fixed += 4 * (head + entry * self.most_experts)

        def total(depth: int) -> int:
            scales = -(-8 * depth // 16) * 16 if is_fp8 else 0
            return fixed + _WARPS * (_STAGE_ROWS * _STAGE_BYTES * depth + scales)

        for depth in range(choice.option("depth", _DEPTH), 1, -1):
            if total(depth) <= _MOST_SHARED_BYTES:
                return depth, total(depth)
        msg = (
            f"standard: persistent cannot run {role}: {rows} rows of activations do "
            f"not fit into shared memory; choose own"
        )
        raise BackendError(msg)


def planned_share(tiles: int, stages: int, processors: int) -> int:
    """How many warps share a tile, so that all warps have one.

    Args:
        tiles: of all experts that may have rows.
        stages: of k.
        processors: of the device.
    """
    fitting = (each for each in (1, 2, 4) if tiles * each >= _WARPS * processors)
    share = next(fitting, _WARPS)
    while share > stages:
        share //= 2
    return share


def _stages(weight: Tensor | BlockScaled) -> int:
    values, _ = stored(weight)
    return -(-values.shape[-1] * values.element_size() // _STAGE_BYTES)
