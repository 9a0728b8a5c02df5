"""What a kernel must read from memory, by the role that its backend gives it, no torch.

A role says what a kernel does (`regions.role`), and the spec how many bytes that takes:
its *operands*. These are what comes from memory in a pass that finds nothing of itself
in a cache: weights with their block scales, cached K and V, and base logits of drafts.
Activations, new rows of K and V and norm weights are none. They are a few rows, which
the kernel before has just written, or a few KB, so a kernel that reads no more has no
speed worth telling.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.families import weight_bytes
from layerscope.layers.spec import LayerSpec
from layerscope.layers.tensors import cached_bytes

_CACHE: Final = "cached K and V"
_LAYER: Final = {
    "qkv": "qkv",
    "attention": _CACHE,
    "o_proj": "o",
    "router": "router",
    "gate_up": "gate_up",
    "down": "down",
}
"""The operand of each role of a layer that has one."""

_WHOLE_DRAFTS: Final = ("draft", "tokens")


def role_operands(
    spec: LayerSpec | DraftSpec, drawn: Sequence[int] = ()
) -> dict[str, dict[str, int]]:
    """Bytes on one rank of each operand of every role that has some, by role.

    Of a layer ``qkv``, ``attention``, ``o_proj``, ``router``, ``gate_up`` and ``down``;
    a dense one has no router. Of a draft ``token_1`` and so on, each of which reads w2
    anew, and ``tokens`` or ``draft`` for all of them at once. A role of several parts
    (``down+sum``) reads what its parts do, each operand once.

    Args:
        spec: what a pass computes.
        drawn: distinct experts of every pass; bytes are their mean, rounded down. Empty
            for what has no experts.

    Raises:
        ValueError: `drawn` does not fit the family.
    """
    if isinstance(spec, DraftSpec):
        return _draft(spec)
    sizes = _mean_weights(spec, drawn) | {_CACHE: cached_bytes(spec)}
    return {
        role: {operand: sizes[operand]}
        for role, operand in _LAYER.items()
        if operand in sizes
    }


def _draft(spec: DraftSpec) -> dict[str, dict[str, int]]:
    w2 = {"w2": spec.w2_bytes}
    bases = {
        f"token_{number}": {f"base logits {number}": spec.base_bytes}
        for number in range(1, spec.tokens + 1)
    }
    each = {role: w2 | base for role, base in bases.items()}
    whole = {name: size for read in each.values() for name, size in read.items()}
    return each | dict.fromkeys(_WHOLE_DRAFTS, whole)


def _mean_weights(spec: LayerSpec, drawn: Sequence[int]) -> dict[str, int]:
    counts: Counter[int | None] = Counter(drawn or (None,))
    totals: Counter[str] = Counter()
    for count, passes in counts.items():
        for name, size in weight_bytes(spec, count).items():
            totals[name] += passes * size
    return {name: total // counts.total() for name, total in totals.items()}
