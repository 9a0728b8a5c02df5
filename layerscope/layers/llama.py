"""The Llama family: grouped-query attention and a dense gated MLP."""

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
    """The weights of one rank; ``gate_up`` has the rows of gate, then of up."""
    return (*attention_tensors(spec, qk_norm=False), *_mlp_tensors(spec))


def _mlp_tensors(spec: LayerSpec) -> tuple[TensorSpec, ...]:
    hidden, width = spec.model.hidden_size, spec.mlp_size
    return (
        TensorSpec(
            name="gate_up",
            shape=(2 * width, hidden),
            split=Split.PAIR_ROWS,
            quantised=True,
            fan_in=hidden,
        ),
        TensorSpec(
            name="down",
            shape=(hidden, width),
            split=Split.COLUMNS,
            quantised=True,
            fan_in=spec.model.mlp_size,
        ),
    )


def sources(model: ModelShape) -> dict[str, Source]:
    """Where a checkpoint keeps each tensor of `tensors`."""
    hidden, width = model.hidden_size, model.mlp_size
    return {
        **attention_sources(model, qk_norm=False),
        "gate_up": Source(
            parts=(
                Part("mlp.gate_proj.weight", (width, hidden)),
                Part("mlp.up_proj.weight", (width, hidden)),
            )
        ),
        "down": plain("mlp.down_proj.weight", (hidden, width)),
    }


def required_bytes(spec: LayerSpec, distinct_experts: int | None) -> dict[Region, int]:
    """Bytes that one pass must move; what is counted: `families.required_bytes`.

    Raises:
        ValueError: `distinct_experts` is given, and the family has no experts.
    """
    if distinct_experts is not None:
        msg = f"{spec.model.name} is dense: distinct_experts must be None"
        raise ValueError(msg)
    weights = sum(tensor.stored_bytes(spec) for tensor in _mlp_tensors(spec))
    return {
        **attention_bytes(spec, qk_norm=False),
        Region.MLP: weights + 3 * activation_bytes(spec),
    }
