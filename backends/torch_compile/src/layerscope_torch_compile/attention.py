"""Attention and the output projection, as functions for the compiler to trace."""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from layerscope.layers.attention import rms_norm
from layerscope.layers.spec import LayerSpec
from layerscope_torch_compile.products import Matrix, linear, stored

Formulation: TypeAlias = Literal["flex", "paged"]

FORMULATION: Final[Formulation] = "flex"
"""How scores are formed on a GPU where `fits_flex`: by the template of flex attention,
which splits the context over processors, or as ``paged``, in loops of inductor's own.
Anywhere else it is ``paged``."""

_SMALLEST_TILE: Final = 16
_QUERY_BLOCK: Final = 128

_MOST_SPLITS: Final = 128
"""Parts of the context whose results inductor still sums in one kernel."""


class Pages(NamedTuple):
    """The pages of every request as flex attention takes them."""

    first_token: Tensor
    """int32 [pages]: position in its request of a page's first token."""

    full: Tensor
    """int32 [requests, 1, 1]: how many pages all new rows see whole."""

    full_pages: Tensor
    """int32 [requests, 1, 1, pages_per_request]: these pages, then the others."""

    partial: Tensor
    """int32 [requests, 1, 1]: how many pages new rows may see in part."""

    partial_pages: Tensor
    """int32 [requests, 1, 1, pages_per_request]: these pages, then the others."""


class AttentionTensors(NamedTuple):
    """What attention reads and writes in one pass."""

    hidden: Tensor
    """[rows, hidden_size]."""

    attn_out: Tensor
    """[rows, query_heads * head_dim], written."""

    key: Tensor
    """[pages * page_size, kv_heads, head_dim]; the new rows are written."""

    value: Tensor
    """As `key`."""

    slots: Tensor
    """int64 [rows]: where in `key` and `value` the new rows go."""

    page_table: Tensor
    """int32 [requests, pages_per_request]."""

    positions: Tensor
    """int64 [rows]."""

    cos: Tensor
    """[rows, 1, head_dim]."""

    sin: Tensor
    """[rows, 1, head_dim]: the first half negated, for `rotated`."""

    input_norm: Tensor
    qkv: Matrix
    q_norm: Tensor | None
    k_norm: Tensor | None

    pages: Pages | None
    """Where the formulation is ``flex``."""


class OProjTensors(NamedTuple):
    """What the output projection reads and writes in one pass."""

    attn_out: Tensor
    residual: Tensor
    mid_residual: Tensor
    mid_hidden: Tensor
    o: Matrix
    post_norm: Tensor


def formulation(spec: LayerSpec, device: torch.device) -> Formulation:
    """How attention of `spec` is formed on `device`."""
    return FORMULATION if device.type == "cuda" and fits_flex(spec) else "paged"


def fits_flex(spec: LayerSpec) -> bool:
    """Whether flex attention has a kernel for few rows that reads these pages.

    A page is a block of its mask and has at least one tile of 16 tokens; the query
    heads that share a KV head are a power of two, and their rows fit into one block.
    """
    group = spec.query_heads // spec.kv_heads
    tiles = _is_power_of_two(spec.page_size) and spec.page_size >= _SMALLEST_TILE
    rows = spec.tokens_per_request * group
    return tiles and _is_power_of_two(group) and rows <= _QUERY_BLOCK


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def attention(spec: LayerSpec, form: Formulation) -> Callable[[AttentionTensors], None]:
    """The region for `spec`: norm, projections, RoPE, new KV rows, and attention."""
    mix = _flex(spec) if form == "flex" else _paged(spec)
    heads = [spec.query_heads, spec.kv_heads, spec.kv_heads]
    dim, eps = spec.model.head_dim, spec.model.rms_norm_eps

    def run(tensors: AttentionTensors) -> None:
        normed = stored(rms_norm(tensors.hidden, tensors.input_norm, eps))
        fused = linear(normed, tensors.qkv).unflatten(-1, (-1, dim))
        query, key, value = fused.split(heads, 1)
        if tensors.q_norm is not None and tensors.k_norm is not None:
            query = rms_norm(query, tensors.q_norm, eps)
            key = rms_norm(key, tensors.k_norm, eps)
        rope = (tensors.cos, tensors.sin)
        tensors.key.index_copy_(0, tensors.slots, rotated(key, *rope))
        tensors.value.index_copy_(0, tensors.slots, value)
        mixed = mix(rotated(query, *rope), tensors)
        tensors.attn_out.copy_(mixed.reshape(tensors.attn_out.shape))

    return run


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [rows, heads, head_dim]; `sin` has its first half negated.

    As `layers.attention.rotate`, but without joining two halves, which the compiler
    may do in memory.
    """
    swapped: Tensor = heads.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return heads * cos + swapped * sin


_Mix: TypeAlias = Callable[[Tensor, AttentionTensors], Tensor]
"""From the rotated query [rows, query_heads, head_dim] to what its heads attend to."""


def _paged(spec: LayerSpec) -> _Mix:
    """Scores and sums over tokens where they lie in their pages; nothing is gathered.

    Dimensions: request, new token, KV head, query head of it, token, element.
    """
    total = spec.context + spec.tokens_per_request
    shape = (spec.requests, spec.tokens_per_request, spec.kv_heads, -1, 1)

    def mix(query: Tensor, tensors: AttentionTensors) -> Tensor:
        dim = query.shape[-1]
        tokens = torch.arange(total, device=query.device)
        pages = tensors.page_table[:, tokens // spec.page_size].long()
        slots = pages * spec.page_size + tokens % spec.page_size
        keys, values = (
            cache[slots].float().transpose(1, 2)[:, None, :, None]
            for cache in (tensors.key, tensors.value)
        )
        scaled = stored(query.float() * dim**-0.5).view(*shape, dim)
        scores = (scaled * keys).sum(-1)
        seen = tokens <= tensors.positions.view(*shape[:2], 1, 1, 1)
        shares = torch.where(seen, scores, -torch.inf).softmax(-1)
        return (stored(shares)[..., None] * values).sum(-2)

    return mix


def _flex(spec: LayerSpec) -> _Mix:
    """Flex attention with a page as a block of its mask."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    tokens, size = spec.tokens_per_request, spec.page_size
    options: Any = {"SPLIT_KV": _splits(spec)}  # not among the typed ones

    def mix(query: Tensor, tensors: AttentionTensors) -> Tensor:
        pages = tensors.pages
        if pages is None:
            msg = "flex attention needs the pages of the pass"
            raise TypeError(msg)

        def seen(_: Tensor, __: Tensor, token: Tensor, slot: Tensor) -> Tensor:
            return pages.first_token[slot // size] + slot % size <= spec.context + token

        mask = BlockMask.from_kv_blocks(
            pages.partial,
            pages.partial_pages,
            pages.full,
            pages.full_pages,
            BLOCK_SIZE=(_QUERY_BLOCK, size),
            mask_mod=seen,
            seq_lengths=(tokens, len(tensors.key)),
            compute_q_blocks=False,
        )
        by_head = query.unflatten(0, (-1, tokens)).transpose(1, 2)
        key, value = (
            cache.transpose(0, 1)[None] for cache in (tensors.key, tensors.value)
        )
        mixed: Tensor = flex_attention(
            by_head,
            key,
            value,
            block_mask=mask,
            enable_gqa=True,
            kernel_options=options,
        )
        return mixed.transpose(1, 2)

    return mix


def _splits(spec: LayerSpec) -> int:
    """Into how many parts the slots of all requests are cut for one KV head.

    Two a processor over all heads, as flex attention does for one request. It would
    divide them by the requests too, though each of them sees its own slots only.
    """
    if not torch.cuda.is_available():
        return 1  # what a CPU runs of it does not split
    processors = torch.cuda.get_device_properties().multi_processor_count
    return max(1, min(_MOST_SPLITS, 2 * processors // spec.kv_heads))


def make_pages(spec: LayerSpec, page_table: Tensor) -> Pages:
    """How flex attention sees `page_table`, int32 [requests, pages_per_request]."""
    count = spec.pages_per_request
    # The first new row sees the context and itself; what it sees, all rows see.
    full = (spec.context + 1) // spec.page_size
    numbers = torch.arange(count, dtype=torch.int32, device=page_table.device)
    first = torch.zeros_like(page_table).flatten()
    first[page_table.flatten().long()] = (numbers * spec.page_size).repeat(
        spec.requests
    )
    counts = page_table.new_full((spec.requests, 1, 1), full)
    by_block = page_table[:, None, None]
    return Pages(
        first_token=first,
        full=counts,
        full_pages=by_block.contiguous(),
        partial=count - counts,
        partial_pages=by_block.roll(-full, -1).contiguous(),
    )


def o_proj(spec: LayerSpec) -> Callable[[OProjTensors], None]:
    """The region for `spec`: projection, residual, and the norm after it."""
    eps = spec.model.rms_norm_eps

    def run(tensors: OProjTensors) -> None:
        summed = tensors.residual + linear(tensors.attn_out, tensors.o)
        tensors.mid_residual.copy_(summed)
        tensors.mid_hidden.copy_(rms_norm(summed, tensors.post_norm, eps))

    return run
