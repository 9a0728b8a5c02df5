"""Two decoder layers of `transformers` as arms: as it is, and with merged projections.

Usage: ``layerscope profile --script benchmarks/foreign_pair.py``. Nothing here knows
layerscope: regions come from the names of the layers' own modules. Every pass has a
layer of its own, so that weights are read from memory, as in a model.
"""

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaRotaryEmbedding,
)

LAYERS, ROWS = 24, 6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16

config = LlamaConfig(
    hidden_size=4096 if DEVICE == "cuda" else 256,
    intermediate_size=14336 if DEVICE == "cuda" else 512,
    num_hidden_layers=1,
    num_attention_heads=32 if DEVICE == "cuda" else 8,
    num_key_value_heads=8 if DEVICE == "cuda" else 2,
    attn_implementation="sdpa",
)


class MergedMLP(nn.Module):
    """The gated MLP with one product for gate and up."""

    def __init__(self, mlp: LlamaMLP) -> None:
        super().__init__()
        both = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
        self.gate_up = nn.Parameter(both.detach())
        self.down = mlp.down_proj

    def forward(self, hidden: Tensor) -> Tensor:
        """What it adds to the residual."""
        gate, up = nn.functional.linear(hidden, self.gate_up).chunk(2, -1)
        added: Tensor = self.down(nn.functional.silu(gate) * up)
        return added


def merged(layer: LlamaDecoderLayer) -> LlamaDecoderLayer:
    """The same layer with the merged MLP; all other weights are shared."""
    with torch.device("meta"):  # nothing of it is kept
        other = LlamaDecoderLayer(config, layer_idx=0)
    other.self_attn = layer.self_attn
    other.input_layernorm = layer.input_layernorm
    other.post_attention_layernorm = layer.post_attention_layernorm
    other.mlp = MergedMLP(layer.mlp)
    return other.eval()


torch.manual_seed(0)
with torch.device(DEVICE):  # drawn there: drawing on the host takes a minute
    plain = [
        LlamaDecoderLayer(config, layer_idx=0).to(DTYPE).eval()
        for _ in range(LAYERS if DEVICE == "cuda" else 2)
    ]
    cos, sin = LlamaRotaryEmbedding(config)(
        torch.zeros(1, dtype=DTYPE), torch.arange(ROWS)[None]
    )


class Called(nn.Module):
    """A layer called as a model calls it."""

    def __init__(self, layer: LlamaDecoderLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Tensor) -> Tensor:
        """The layer's output."""
        result = self.layer(hidden, position_embeddings=(cos, sin))
        output: Tensor = result[0] if isinstance(result, tuple) else result
        return output


arms = {
    "transformers": [Called(layer) for layer in plain],
    "merged_mlp": [Called(merged(layer)) for layer in plain],
}
regions = {"attention": "layer.self_attn", "mlp": "layer.mlp"}


def inputs(step: int) -> tuple[Tensor]:
    """Hidden states of six rows, new at every step."""
    draw = torch.Generator(DEVICE).manual_seed(step)
    shape = (1, ROWS, config.hidden_size)
    return (torch.randn(shape, generator=draw, device=DEVICE, dtype=DTYPE),)
