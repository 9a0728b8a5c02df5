"""The greedy tokens of a draft as one compiled function."""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from layerscope.layers.draft import DraftPass, DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.plugin import DraftContext
from layerscope_torch_compile.compiling import compiled
from layerscope_torch_compile.products import Matrix, dots, matrix_of, stored, values

BLOCKS: Final = 512
"""Into how many parts a vocabulary is cut to find its best token; the compiler would
have one processor look at all of it."""


class DraftTensors(NamedTuple):
    """What one pass reads and writes; the shapes are those of `DraftPass`."""

    w1: Tensor
    w2: Matrix
    base: Tensor
    previous: Tensor
    chosen: Tensor


def draft(tensors: DraftTensors) -> None:
    """Choose all tokens of a pass, one position after another."""
    before, tokens = tensors.previous, []
    for base in tensors.base.unbind(0):
        added = biases(tensors.w1[before], tensors.w2)
        best = [
            argmax(logits + bias)
            for logits, bias in zip(base.unbind(0), added, strict=True)
        ]
        before = stored(torch.cat(best))
        tokens.append(before)
    tensors.chosen.copy_(torch.stack(tokens))


def biases(rows: Tensor, w2: Matrix) -> list[Tensor]:
    """What `rows` [requests, rank] of w1 add to the logits, a float32 [vocab] each.

    Plain weights go to the matrix library where that keeps its sums in float32; scaled
    ones are dequantised within the compiler's own loop, for rounded to the type of the
    rows they would move near ties.
    """
    if w2.scale is None and rows.dtype is w2.data.dtype:
        if rows.dtype is torch.float32:
            return list(torch.mm(rows, w2.data.T).unbind(0))
        if rows.is_cuda:
            wide = torch.mm(rows, w2.data.T, out_dtype=torch.float32)
            return list(wide.unbind(0))
    return dots(rows, values(w2))


def argmax(logits: Tensor) -> Tensor:
    """Index of the largest of [n], the lowest of equal ones, as int64 [1]."""
    size = -(-len(logits) // BLOCKS)
    blocks = -(-len(logits) // size)
    # What is beyond the end repeats the last one, which comes before it.
    index = torch.arange(blocks * size, device=logits.device)
    cut = logits[index.clamp(max=len(logits) - 1)].view(blocks, size)
    best, where = cut.max(-1)
    block = best.argmax(-1, keepdim=True)
    return block * size + where.gather(0, block)


class DraftStep:
    """The draft of one problem; see `plugin.DraftStep`."""

    def __init__(self, problem: DraftProblem) -> None:
        """Compile the draft of `problem`, and run it once on every pass.

        Raises:
            BackendError: it cannot be compiled, or not as one graph.
        """
        self._calls = [_tensors(each) for each in problem.passes]
        self._run = compiled("draft", draft, self._calls)
        self.w2_reads = problem.spec.tokens

    def run(self, pass_index: int) -> None:
        """Enqueue all tokens of pass `pass_index`."""
        with torch.no_grad():
            self._run(self._calls[pass_index])

    def touched_bytes(self) -> int | None:
        """None: which operands a kernel reads anew, only the compiler knows."""
        return None


def _tensors(each: DraftPass) -> DraftTensors:
    return DraftTensors(
        w1=each.w1,
        w2=matrix_of(each.w2),
        base=each.base,
        previous=each.previous,
        chosen=each.chosen,
    )


class BuiltDraft:
    """A draft compiled for one problem; see `plugin.BuiltDraft`."""

    device_bytes = 0

    def __init__(self, problem: DraftProblem) -> None:
        """Compile the draft of `problem`."""
        self._spec = problem.spec
        self._step = DraftStep(problem)

    def plan(self, spec: DraftSpec) -> DraftStep | None:
        """The step if `spec` is the problem's own, else None."""
        return self._step if spec == self._spec else None


def build_draft(context: DraftContext) -> BuiltDraft:
    """Compile the draft for `context.problem`.

    Raises:
        BackendError: it cannot be compiled, or not without a graph break.
    """
    return BuiltDraft(context.problem)
