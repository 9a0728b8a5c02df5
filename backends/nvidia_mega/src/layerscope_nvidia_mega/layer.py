"""The standard chain with the mechanisms that are on."""

from dataclasses import dataclass, replace

from layerscope.layers.problem import Problem
from layerscope.regions import Region
from layerscope_nvidia_mega import norm_product, rope_attention, routing
from layerscope_nvidia_mega.switches import Mechanisms
from layerscope_standard.attention import Attention, make_attention
from layerscope_standard.experts import Experts, make_experts
from layerscope_standard.kernels import Operation
from layerscope_standard.layer import BuiltLayer, Chain, LayerStep, last_region
from layerscope_standard.selection import Choice
from layerscope_standard.workshop import Workshop, plain, stored

_WHOLE = Choice(options={"splits": 1, "depth": 8})
"""Of the qkv product, where every block of attention adds up its parts."""


@dataclass(frozen=True, slots=True)
class MegaLayer:
    """The chains of a problem."""

    mechanisms: Mechanisms
    attention: Attention
    experts: Experts

    def attend(self, index: int) -> list[Operation]:
        """The kernels of attention of pass `index`."""
        attention = self.attention
        return [
            *self._qkv(index),
            *self._rope(index),
            attention.combine(index),
        ]

    def _qkv(self, index: int) -> list[Operation]:
        attention, problem = self.attention, self.attention.problem
        weights, parts = problem.weights[index], attention.qkv.parts
        weight = weights["qkv"]
        _, _, outputs = parts.shape
        model, workshop = problem.spec.model, attention.workshop
        fits = norm_product.fits(outputs, model.hidden_size, workshop.processors)
        if not (self.mechanisms.norm_in_product and fits):
            product = attention.qkv.operation(weight, attention.normed)
            return [attention.norm(index), product]
        norm = plain(weights["input_norm"])
        hidden, eps = problem.buffers[index].hidden, model.rms_norm_eps
        return [norm_product.norm_product(workshop, weight, norm, hidden, parts, eps)]

    def _rope(self, index: int) -> list[Operation]:
        attention = self.attention
        if self.mechanisms.rope_in_query and rope_attention.fits(
            attention.problem.spec
        ):
            return [rope_attention.rope_attention(attention, index)]
        return [attention.rope(index), attention.attention(index)]

    def project(self, index: int) -> list[Operation]:
        """The kernels of o_proj_all_reduce of pass `index`."""
        return self.attention.o_proj(index)

    def mix(self, index: int) -> list[Operation]:
        """The kernels of the experts, or of the MLP, of pass `index`."""
        experts = self.experts
        if self.mechanisms.bitmap_routing:
            return routing.operations(experts, index)
        return experts.operations(index)


def make_layer(
    problem: Problem, workshop: Workshop, mechanisms: Mechanisms
) -> BuiltLayer:
    """The layer of `problem`, launched with `workshop`.

    Raises:
        BackendError: a kernel cannot be compiled or loaded.
    """
    values, _ = stored(problem.weights[0]["qkv"])
    outputs, size = values.shape
    selection = workshop.selection
    norms = norm_product.fits(outputs, size, workshop.processors)
    ropes = mechanisms.rope_in_query and rope_attention.fits(problem.spec)
    if ropes or (mechanisms.norm_in_product and norms):
        selection = selection.overridden("qkv", _WHOLE)
    if ropes:
        selection = selection.overridden("attention", Choice())  # as planned
    workshop = replace(workshop, selection=selection, turns=mechanisms.turns())
    attention = make_attention(problem, workshop)
    experts = make_experts(problem, workshop)
    layer = MegaLayer(mechanisms, attention, experts)
    chains: dict[Region, Chain] = {
        Region.ATTENTION: layer.attend,
        Region.O_PROJ_ALL_REDUCE: layer.project,
        last_region(problem.spec): layer.mix,
    }
    step = LayerStep(problem, chains, experts.routing, workshop)
    return BuiltLayer(problem, workshop, step)
