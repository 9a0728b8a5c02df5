"""Everything that fixes the work of one decoder layer, without torch.

A `ModelShape` is what a model's ``config.json`` says. A `LayerSpec` adds the workload:
rows, context, dtypes, sharding, routing. Two runs with equal specs did the same work.
"""

from enum import StrEnum
from typing import Final

import msgspec

from layerscope.errors import InputError
from layerscope.regions import Region

QUANT_BLOCK: Final = 128
"""Block-scaled weights have one fp32 scale a block of 128 x 128 elements."""


class Family(StrEnum):
    """Decoder-layer architectures; the value is ``model_type`` in ``config.json``."""

    QWEN3_MOE = "qwen3_moe"
    LLAMA = "llama"


class DType(StrEnum):
    """Element types of activations and weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3 = "float8_e4m3"  # weights only, block-scaled

    @property
    def bytes(self) -> int:
        """Size of one element."""
        return {"float32": 4, "bfloat16": 2, "float8_e4m3": 1}[self.value]


class StepKind(StrEnum):
    """What a step does for every request."""

    DECODE = "decode"  # one new row
    VERIFY = "verify"  # the last accepted token and its drafts


class Routing(StrEnum):
    """How the pinned experts of a step are drawn."""

    UNIFORM = "uniform"  # every row draws its experts independently
    CORRELATED = "correlated"  # draft rows of a request keep half of the row before


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True):
    """Llama 3 frequency scaling, named as in ``config.json``."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one decoder layer of a model, before any sharding."""

    name: str
    family: Family
    layers: int
    hidden_size: int
    query_heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    mlp_size: int = 0  # dense families: width of gate, up and down
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0  # width of one expert's gate, up and down
    normalize_top_k: bool = True  # divide the chosen experts' weights by their sum
    vocab_size: int = 0  # rows of the head; 0 where no config says


class RegionSignature(msgspec.Struct, frozen=True):
    """What a region reads and writes; names are those of `problem.Buffers`."""

    region: Region
    reads: tuple[str, ...]
    writes: tuple[str, ...]


_ATTENTION: Final = RegionSignature(
    Region.ATTENTION, ("hidden", "residual", "kv", "positions"), ("attn_out", "kv")
)
_O_PROJ: Final = RegionSignature(
    Region.O_PROJ_ALL_REDUCE, ("attn_out", "residual"), ("hidden", "residual")
)
SIGNATURES: Final[dict[Family, tuple[RegionSignature, ...]]] = {
    Family.QWEN3_MOE: (
        _ATTENTION,
        _O_PROJ,
        RegionSignature(Region.MOE, ("hidden", "residual"), ("hidden", "residual")),
    ),
    Family.LLAMA: (
        _ATTENTION,
        _O_PROJ,
        RegionSignature(Region.MLP, ("hidden", "residual"), ("hidden", "residual")),
    ),
}
"""The regions of each family, in execution order."""


class LayerSpec(msgspec.Struct, frozen=True, kw_only=True, tag="layer"):
    """One decoder layer and the step it runs: the thing that is measured."""

    model: ModelShape
    layer: int = 0
    dtype: DType = DType.BFLOAT16
    weight_dtype: DType = DType.BFLOAT16
    requests: int = 1
    draft_tokens: int = 5
    context: int = 8192  # tokens already in the KV cache, of every request
    page_size: int = 16
    tp: int = 1
    shard_shaped: bool = False  # one rank's slice on one GPU, communication left out
    routing: Routing = Routing.UNIFORM

    @property
    def tokens_per_request(self) -> int:
        """New rows of one request: the last accepted token and its drafts."""
        return 1 + self.draft_tokens

    @property
    def rows(self) -> int:
        """Rows of the step over all requests."""
        return self.requests * self.tokens_per_request

    @property
    def kind(self) -> StepKind:
        """What the step does for every request."""
        return StepKind.VERIFY if self.draft_tokens else StepKind.DECODE

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions of the layer in execution order."""
        return tuple(s.region for s in SIGNATURES[self.model.family])

    @property
    def query_heads(self) -> int:
        """Query heads on one rank."""
        return self.model.query_heads // self.tp

    @property
    def kv_heads(self) -> int:
        """KV heads on one rank; replicated when ranks outnumber them."""
        return max(1, self.model.kv_heads // self.tp)

    @property
    def mlp_size(self) -> int:
        """Dense MLP width on one rank."""
        return self.model.mlp_size // self.tp

    @property
    def expert_size(self) -> int:
        """Expert width on one rank."""
        return self.model.expert_size // self.tp

    @property
    def pages_per_request(self) -> int:
        """Pages that hold the context and the new rows of one request."""
        return -(-(self.context + self.tokens_per_request) // self.page_size)

    def check(self) -> None:
        """Refuse a spec that no machine could run.

        Raises:
            InputError: naming every field that is out of range or does not divide.
        """
        reasons = _range_reasons(self) + _sharding_reasons(self)
        if reasons:
            raise InputError("; ".join(reasons))


def _range_reasons(spec: LayerSpec) -> list[str]:
    reasons = []
    if not 0 <= spec.layer < spec.model.layers:
        reasons.append(
            f"layer {spec.layer} is out of range: {spec.model.name} has layers "
            f"0 to {spec.model.layers - 1}"
        )
    minima = {
        "requests": (spec.requests, 1),
        "draft-tokens": (spec.draft_tokens, 0),
        "context": (spec.context, 0),
        "page-size": (spec.page_size, 1),
        "tp": (spec.tp, 1),
    }
    reasons += [
        f"--{name} is {value}, and must be at least {low}"
        for name, (value, low) in minima.items()
        if value < low
    ]
    if spec.shard_shaped and spec.tp == 1:
        reasons.append("--shard-shaped is one rank's slice of several: give --tp too")
    if spec.dtype is DType.FLOAT8_E4M3:
        reasons.append("--dtype is for activations: float32 or bfloat16")
    return reasons


def _sharding_reasons(spec: LayerSpec) -> list[str]:
    if spec.tp <= 1:
        return []
    model, tp = spec.model, spec.tp
    sizes = {"query heads": model.query_heads}
    if model.experts:
        sizes["expert width"] = model.expert_size
    else:
        sizes["MLP width"] = model.mlp_size
    reasons = [
        f"--tp {tp} does not divide the {size} {name} of {model.name}"
        for name, size in sizes.items()
        if size % tp
    ]
    if model.kv_heads % tp and tp % model.kv_heads:
        reasons.append(
            f"--tp {tp} and the {model.kv_heads} KV heads of {model.name} do not "
            "divide each other"
        )
    return reasons
