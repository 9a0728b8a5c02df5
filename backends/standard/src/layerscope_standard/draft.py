"""The draft, one launch a token."""

from typing import Final

import torch
from torch import Tensor

from layerscope.layers.draft import DraftPass, DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.regions import role
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.splitting import PRODUCT_WARPS, TILE_OUTPUTS
from layerscope_standard.workshop import Workshop, suffix

MOST_REQUESTS: Final = 8

_BLOCKS_A_PROCESSOR: Final = 2
_RANK_UNIT: Final = 64
_MOST_RANK: Final = 256


def fits(spec: DraftSpec) -> bool:
    """Whether the kernel takes the draft: its types, requests and rank."""
    return (
        spec.dtype is DType.BFLOAT16
        and spec.weight_dtype in {DType.BFLOAT16, DType.FLOAT8_E4M3}
        and spec.requests <= MOST_REQUESTS
        and spec.rank % _RANK_UNIT == 0
        and spec.rank <= _MOST_RANK
    )


class DraftStep:
    """The draft of one problem; see `plugin.DraftStep`."""

    def __init__(self, problem: DraftProblem, workshop: Workshop) -> None:
        """Prepare the launches of all tokens and passes.

        Raises:
            BackendError: the kernel cannot be compiled or loaded.
        """
        self.w2_reads = problem.spec.tokens
        self._workshop, self._spec = workshop, problem.spec
        tiles = -(-problem.spec.vocab_slice // TILE_OUTPUTS)
        most = _BLOCKS_A_PROCESSOR * workshop.processors
        self._blocks = min(most, -(-tiles // PRODUCT_WARPS))
        self._found = workshop.empty(self._blocks, MOST_REQUESTS, dtype=torch.int64)
        # Every launch leaves it at zero.
        self._ended = torch.zeros(1, dtype=torch.int32, device=problem.device)
        workshop.constants.append(self._ended)
        self.operations = [self._tokens(each) for each in problem.passes]

    def _tokens(self, each: DraftPass) -> list[Operation]:
        before, operations = each.previous, []
        pairs = zip(each.base, each.chosen, strict=True)
        for number, (base, chosen) in enumerate(pairs, start=1):
            operations.append(self._token(each, number, (base, before, chosen)))
            before = chosen
        return operations

    def _token(
        self, each: DraftPass, number: int, tensors: tuple[Tensor, Tensor, Tensor]
    ) -> Operation:
        base, before, chosen = tensors
        values, scales = self._workshop.operand(each.w2)
        spec = self._spec
        return self._workshop.operation(
            f"token_{number}",
            Kernel(
                "draft",
                f"draft_token_{suffix(each.w2)}",
                32 * PRODUCT_WARPS,
                (("RANK", spec.rank),),
            ),
            (self._blocks, 1, 1),
            (
                values,
                scales,
                each.w1,
                base,
                before,
                chosen,
                self._found,
                self._ended,
                spec.requests,
                spec.vocab_slice,
            ),
        )

    def run(self, pass_index: int) -> None:
        """Enqueue all tokens of pass `pass_index`."""
        for operation in self.operations[pass_index]:
            with role(operation.role):
                operation.enqueue()

    def touched_bytes(self) -> int | None:
        """Bytes that one pass reads and writes; w2 counts at every token."""
        spec = self._spec
        return spec.required_bytes + (spec.tokens - 1) * spec.w2_bytes


class BuiltDraft:
    """A draft built for one problem; see `plugin.BuiltDraft`."""

    def __init__(self, problem: DraftProblem, workshop: Workshop) -> None:
        """Build the draft of `problem`, where the kernel takes it.

        Raises:
            BackendError: the kernel cannot be compiled or loaded.
        """
        self._spec = problem.spec
        self._step = DraftStep(problem, workshop) if fits(problem.spec) else None
        self.workshop = workshop

    @property
    def device_bytes(self) -> int:
        """Of scratch, and of weights that were packed for it."""
        return self.workshop.device_bytes

    def plan(self, spec: DraftSpec) -> DraftStep | None:
        """The step if `spec` is the problem's own and the kernel takes it."""
        return self._step if spec == self._spec else None
