"""The parts of a layer with other candidates than the own kernels, where chosen."""

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from layerscope_standard import flashinfer_norms, triton_experts, triton_norms
from layerscope_standard.attention import Attention, attention_shape
from layerscope_standard.experts import Experts
from layerscope_standard.flashinfer_attention import (
    WORKSPACE_FLOATS,
    attention_operation,
)
from layerscope_standard.kernels import Operation
from layerscope_standard.selection import FLASHINFER, OWN, TRITON, Choice
from layerscope_standard.workshop import plain

_OWN = Choice()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAttention(Attention):
    """Attention whose norms, or attention itself, run as chosen."""

    norm_choice: Choice = _OWN
    post_norm_choice: Choice = _OWN
    workspace: Tensor | None = None
    """float32 [WORKSPACE_FLOATS]; where flashinfer runs attention."""

    def operations(self, index: int) -> list[Operation]:
        """The kernels of attention of pass `index`."""
        first, qkv, rope, *rest = Attention.operations(self, index)
        if self.workspace is not None:
            rest = [
                attention_operation(
                    self.workshop,
                    self.problem.spec,
                    self.problem.caches[index],
                    (self.queries, self.workspace),
                    self.problem.buffers[index].attn_out,
                )
            ]
        return [self._first_norm(first, index), qkv, rope, *rest]

    def _first_norm(self, own: Operation, index: int) -> Operation:
        problem, choice = self.problem, self.norm_choice
        eps = problem.spec.model.rms_norm_eps
        hidden = problem.buffers[index].hidden
        weight = plain(problem.weights[index]["input_norm"])
        if choice.candidate == FLASHINFER:
            given = hidden, weight
            return flashinfer_norms.norm_operation(
                self.workshop, "norm", given, self.normed, eps
            )
        if choice.candidate == TRITON:
            return triton_norms.norm_operation(
                self.workshop,
                ("norm", choice),
                (None, hidden, weight),
                (self.normed, self.normed),
                eps,
            )
        return own

    def o_proj(self, index: int) -> list[Operation]:
        """The kernels of o_proj_all_reduce of pass `index`."""
        product, own = Attention.o_proj(self, index)
        problem, choice = self.problem, self.post_norm_choice
        eps, buffers = problem.spec.model.rms_norm_eps, problem.buffers[index]
        weight = plain(problem.weights[index]["post_norm"])
        given = self.o.parts, buffers.hidden, weight
        written = buffers.mid_residual, buffers.mid_hidden
        if choice.candidate == FLASHINFER:
            return [
                product,
                *flashinfer_norms.add_norm_operations(
                    self.workshop, "post_norm", given, written, eps
                ),
            ]
        if choice.candidate == TRITON:
            named = "post_norm", choice
            norm = triton_norms.norm_operation(
                self.workshop, named, given, written, eps
            )
            return [product, norm]
        return [product, own]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenExperts(Experts):
    """Experts whose products run as chosen."""

    gate_up_choice: Choice = _OWN
    down_choice: Choice = _OWN
    each: Tensor | None = None
    """float32 [pairs, hidden_size]: outputs of pairs, where Triton runs ``down``."""

    def after_routing(self, index: int) -> list[Operation]:
        """The kernels of pass `index` that read the table."""
        gate_up, *down = Experts.after_routing(self, index)
        routed = triton_experts.Routed(
            self.workshop, self.table, self.top_k, self.most_experts
        )
        weights, buffers = self.problem.weights[index], self.problem.buffers[index]
        if self.gate_up_choice.candidate == TRITON:
            gate_up = triton_experts.gate_up_operation(
                routed,
                self.gate_up_choice,
                weights["gate_up"],
                buffers.mid_hidden,
                self.active,
            )
        if self.each is not None:
            down = triton_experts.down_operations(
                routed,
                self.down_choice,
                weights["down"],
                (self.active, self.each, self.row_weights, buffers.mid_residual),
                buffers.out,
            )
        return [gate_up, *down]


def chosen_attention(own: Attention) -> Attention:
    """`own`, or what the table chooses beside it.

    Raises:
        BackendError: what was chosen is not installed.
    """
    spec, workshop = own.problem.spec, own.workshop
    choose = workshop.selection.choose
    shape = {"rows": spec.rows, "hidden": spec.model.hidden_size}
    norm, post_norm = choose("norm", shape), choose("post_norm", shape)
    attention = choose("attention", attention_shape(spec)).candidate
    if {norm.candidate, post_norm.candidate, attention} == {OWN}:
        return own
    workspace = None
    if attention == FLASHINFER:
        workspace = workshop.empty(WORKSPACE_FLOATS)
    return ChosenAttention(
        **_fields(own),
        norm_choice=norm,
        post_norm_choice=post_norm,
        workspace=workspace,
    )


def chosen_experts(own: Experts) -> Experts:
    """`own`, or what the table chooses beside it.

    Raises:
        BackendError: what was chosen is not installed.
    """
    gate_up, down = (
        own.workshop.selection.choose(name, own.shape(own.problem.weights[0][name]))
        for name in ("gate_up", "down")
    )
    if {gate_up.candidate, down.candidate} == {OWN}:
        return own
    each = None
    if down.candidate == TRITON:
        pairs = len(own.active)
        each = own.workshop.empty(pairs, own.problem.spec.model.hidden_size)
    return ChosenExperts(
        **_fields(own), gate_up_choice=gate_up, down_choice=down, each=each
    )


def _fields(part: Attention | Experts) -> dict[str, Any]:
    return {each.name: getattr(part, each.name) for each in fields(part)}
