"""The draft in plain torch, one token after another: the ``reference`` backend's."""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.layers.draft import DraftPass, DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.traffic import Traffic
from layerscope.layers.weights import matrix
from layerscope.plugin import DraftContext
from layerscope.regions import role


class ReferenceDraftStep:
    """The step of one problem; see `plugin.DraftStep`."""

    def __init__(self, problem: DraftProblem) -> None:
        """Bind the step, and count the bytes of a pass by running the first one."""
        self._problem = problem
        self.w2_reads = problem.spec.tokens
        traffic = Traffic()
        with traffic:
            self.run(0)
        self._touched = traffic.bytes

    def run(self, pass_index: int) -> None:
        """Enqueue all tokens of pass `pass_index`."""
        each = self._problem.passes[pass_index]
        before = each.previous
        with torch.no_grad():
            for number, (base, chosen) in enumerate(
                zip(each.base, each.chosen, strict=True), start=1
            ):
                with role(f"token_{number}"):
                    logits = base + bias(each, before)
                    torch.argmax(logits, -1, out=chosen)
                before = chosen

    def touched_bytes(self) -> int | None:
        """Bytes that the operators of one pass read and write."""
        return self._touched


def bias(each: DraftPass, before: Tensor) -> Tensor:
    """What the tokens `before` add to the logits, float32 [requests, vocab_slice].

    Accumulated and kept in float32, and so are dequantised weights: rounded to bfloat16
    they would be off by as much as an arm's tokens may be.
    """
    rows, w2 = each.w1.index_select(0, before), each.w2
    bf16 = torch.bfloat16
    if rows.is_cuda and isinstance(w2, Tensor) and rows.dtype == w2.dtype == bf16:
        return torch.mm(rows, w2.T, out_dtype=torch.float32)
    return torch.mm(rows.float(), matrix(w2, torch.float32).T)


@dataclass(frozen=True, slots=True)
class ReferenceDraft:
    """The draft built for one problem; see `plugin.BuiltDraft`."""

    problem: DraftProblem
    step: ReferenceDraftStep
    device_bytes: int = 0

    def plan(self, spec: DraftSpec) -> ReferenceDraftStep | None:
        """The step if `spec` is the problem's own, else None."""
        return self.step if spec == self.problem.spec else None


def build_draft(context: DraftContext) -> ReferenceDraft:
    """Build the draft for `context.problem`."""
    return ReferenceDraft(context.problem, ReferenceDraftStep(context.problem))
