"""Everything that fixes the work of one draft, without torch.

The draft is the Markov head of DSpark: base logits of all positions are given, and the
token before each position adds a bias of a low rank:
``logits[k] = base[k] + w2 @ w1[token[k - 1]]``, ``token[k] = argmax(logits[k])``.
"""

from typing import Final

import msgspec

from layerscope.errors import InputError
from layerscope.layers.spec import QUANT_BLOCK, DType, LayerSpec
from layerscope.regions import Region

MARKOV_RANK: Final = 256
"""DSpark's default rank of the bigram bias."""

_LEAST_TOKENS: Final = 2  # fewer cannot tie
_INT64_BYTES: Final = 8
_FLOAT32_BYTES: Final = 4


class DraftSpec(msgspec.Struct, frozen=True, kw_only=True, tag="draft"):
    """One draft on one rank: `tokens` greedy tokens for every request."""

    model: str  # name of the model whose vocabulary it has
    vocab_size: int  # over all ranks
    dtype: DType = DType.BFLOAT16  # of w1
    weight_dtype: DType = DType.BFLOAT16  # of w2
    rank: int = MARKOV_RANK
    requests: int = 1
    tokens: int = 5
    tp: int = 1
    shard_shaped: bool = False  # the winner of one rank's slice, not of all ranks

    @property
    def vocab_slice(self) -> int:
        """Tokens of the vocabulary on one rank; the last rank's slice is padded."""
        return -(-self.vocab_size // self.tp)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The one region of the problem."""
        return (Region.DRAFT,)

    @property
    def w2_bytes(self) -> int:
        """Bytes of one rank's w2 in its stored type, with block scales."""
        size = self.vocab_slice * self.rank * self.weight_dtype.bytes
        if self.weight_dtype is DType.FLOAT8_E4M3:
            blocks = -(-self.vocab_slice // QUANT_BLOCK) * -(-self.rank // QUANT_BLOCK)
            size += blocks * _FLOAT32_BYTES
        return size

    @property
    def base_bytes(self) -> int:
        """Bytes of the base logits of one position on one rank, of all requests."""
        return self.requests * self.vocab_slice * _FLOAT32_BYTES

    @property
    def required_bytes(self) -> int:
        """Bytes that one pass must move: w2 once, base logits, rows of w1, tokens."""
        picks = self.requests * self.tokens
        base = self.tokens * self.base_bytes
        rows = picks * self.rank * self.dtype.bytes
        return self.w2_bytes + base + rows + picks * _INT64_BYTES

    def check(self) -> None:
        """Refuse a spec that no machine could run.

        Raises:
            InputError: naming every field that is out of range.
        """
        minima = {
            "--requests": (self.requests, 1),
            "--draft-tokens": (self.tokens, 1),
            "--tp": (self.tp, 1),
            "the rank of the bias": (self.rank, 1),
        }
        reasons = [
            f"{name} is {value}, and must be at least {low}"
            for name, (value, low) in minima.items()
            if value < low
        ]
        if self.tp >= 1 and self.vocab_slice < _LEAST_TOKENS:
            reasons.append(
                f"--tp {self.tp} leaves a rank {self.vocab_slice} of "
                f"{self.vocab_size} tokens, and a draft needs {_LEAST_TOKENS}"
            )
        if self.dtype is DType.FLOAT8_E4M3:
            reasons.append("--dtype is for activations: float32 or bfloat16")
        if reasons:
            raise InputError("; ".join(reasons))


def draft_of(spec: LayerSpec) -> DraftSpec | None:
    """The draft that fills the step of `spec`; None where it has no drafts to make.

    That is where a request has no draft tokens, or the vocabulary is not known.
    """
    if not (spec.draft_tokens and spec.model.vocab_size):
        return None
    return DraftSpec(
        model=spec.model.name,
        vocab_size=spec.model.vocab_size,
        dtype=spec.dtype,
        weight_dtype=spec.weight_dtype,
        requests=spec.requests,
        tokens=spec.draft_tokens,
        tp=spec.tp,
        shard_shaped=spec.shard_shaped,
    )
