"""The Qwen3-MoE family: grouped-query attention with QK-norm, and routed experts."""

from layerscope.layers.spec import LayerSpec, ModelShape
from layerscope.layers.tensors import (
    Part,
    Source,
    Split,
    TensorSpec,
    activation_bytes,
    attention_bytes,
    attention_sources,
    attention_tensors,
    plain,
)
from layerscope.regions import Region


def tensors(spec: LayerSpec) -> tuple[TensorSpec, ...]:
    """The weights of one rank; every rank holds a slice of every expert.

    ``gate_up`` is [experts, 2 * width, hidden], the rows of gate, then of up.
    """
    return (
        *attention_tensors(spec, qk_norm=True),
        _router(spec),
        *_expert_tensors(spec, spec.model.experts),
    )


def _router(spec: LayerSpec) -> TensorSpec:
    hidden = spec.model.hidden_size
    shape = (spec.model.experts, hidden)
    return TensorSpec(name="router", shape=shape, fan_in=hidden)


def _expert_tensors(spec: LayerSpec, experts: int) -> tuple[TensorSpec, ...]:
    hidden, width = spec.model.hidden_size, spec.expert_size
    return (
        TensorSpec(
            name="gate_up",
            shape=(experts, 2 * width, hidden),
            split=Split.PAIR_ROWS,
            quantised=True,
            fan_in=hidden,
        ),
        TensorSpec(
            name="down",
            shape=(experts, hidden, width),
            split=Split.COLUMNS,
            quantised=True,
            fan_in=spec.model.expert_size,
        ),
    )


def sources(model: ModelShape) -> dict[str, Source]:
    """Where a checkpoint keeps each tensor of `tensors`."""
    hidden, width, experts = model.hidden_size, model.expert_size, model.experts
    each = "mlp.experts.{expert}."
    return {
        **attention_sources(model, qk_norm=True),
        "router": plain("mlp.gate.weight", (experts, hidden)),
        "gate_up": Source(
            parts=(
                Part(f"{each}gate_proj.weight", (width, hidden)),
                Part(f"{each}up_proj.weight", (width, hidden)),
            ),
            experts=experts,
            fused=Part("mlp.experts.gate_up_proj", (experts, 2 * width, hidden)),
        ),
        "down": Source(
            parts=(Part(f"{each}down_proj.weight", (hidden, width)),),
            experts=experts,
            fused=Part("mlp.experts.down_proj", (experts, hidden, width)),
        ),
    }


def required_bytes(spec: LayerSpec, distinct_experts: int | None) -> dict[Region, int]:
    """Bytes that one pass must move; what is counted: `families.required_bytes`.

    Raises:
        ValueError: `distinct_experts` is None: the routing decides the bytes.
    """
    if distinct_experts is None:
        msg = f"{spec.model.name} has experts: distinct_experts must be given"
        raise ValueError(msg)
    read = (_router(spec), *_expert_tensors(spec, distinct_experts))
    weights = sum(tensor.stored_bytes(spec) for tensor in read)
    return {
        **attention_bytes(spec, qk_norm=True),
        Region.MOE: weights + 3 * activation_bytes(spec),
    }
