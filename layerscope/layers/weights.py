"""Weights in memory: plain or block-scaled tensors, random or one rank's slice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.layers.families import layer_tensors
from layerscope.layers.seeding import generator
from layerscope.layers.spec import QUANT_BLOCK, DType, LayerSpec
from layerscope.layers.tensors import Split, TensorSpec

TORCH_DTYPES: Final[dict[DType, torch.dtype]] = {
    DType.FLOAT32: torch.float32,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT8_E4M3: torch.float8_e4m3fn,
}

FP8_MAX: Final = 448.0
"""Largest finite float8_e4m3fn."""

_NORM_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True)
class BlockScaled:
    """A matrix, or a stack of them, in fp8 with one scale a 128 x 128 block."""

    data: Tensor
    """float8_e4m3fn [..., rows, cols]."""

    scale: Tensor
    """float32 [..., ceil(rows / 128), ceil(cols / 128)]; the value is data * scale."""

    def dequantise(self, dtype: torch.dtype) -> Tensor:
        """The values [..., rows, cols]: product in float32 or wider, then `dtype`."""
        rows, cols = self.data.shape[-2:]
        wide = torch.promote_types(dtype, torch.float32)
        scale = self.scale.to(wide).repeat_interleave(QUANT_BLOCK, -1)[..., :cols]
        scale = scale.repeat_interleave(QUANT_BLOCK, -2)[..., :rows, :]
        return (self.data.to(wide) * scale).to(dtype)

    def clone(self) -> "BlockScaled":
        """A copy in memory of its own."""
        return BlockScaled(self.data.clone(), self.scale.clone())

    def to(self, device: torch.device) -> "BlockScaled":
        """Itself on `device`."""
        return BlockScaled(self.data.to(device), self.scale.to(device))

    def matrices(self) -> Iterator["BlockScaled"]:
        """Those of a stack, in its memory."""
        return map(BlockScaled, self.data, self.scale)


Weights: TypeAlias = Mapping[str, Tensor | BlockScaled]
"""The tensors of `families.layer_tensors` by name."""


def quantise(tensor: Tensor) -> BlockScaled:
    """`tensor` [..., rows, cols] in fp8, the scale of a block being its amax / 448.

    The last blocks may be ragged; a block of zeros stays zero.
    """
    if tensor.dim() == 2:  # noqa: PLR2004 (a matrix)
        return _quantise_matrix(tensor)
    # One matrix at a time: the float32 copies of a whole stack of experts are large.
    rows, cols = (-(-length // QUANT_BLOCK) for length in tensor.shape[-2:])
    data = torch.empty_like(tensor, dtype=torch.float8_e4m3fn)
    scale = tensor.new_empty((*tensor.shape[:-2], rows, cols), dtype=torch.float32)
    for index, matrix in enumerate(tensor):
        part = quantise(matrix)
        data[index].copy_(part.data)
        scale[index].copy_(part.scale)
    return BlockScaled(data, scale)


def _quantise_matrix(matrix: Tensor) -> BlockScaled:
    rows, cols = matrix.shape
    pad = (0, -cols % QUANT_BLOCK, 0, -rows % QUANT_BLOCK)
    blocks = functional.pad(matrix.float(), pad).unflatten(1, (-1, QUANT_BLOCK))
    blocks = blocks.unflatten(0, (-1, QUANT_BLOCK))  # [block row, 128, block col, 128]
    # The floor keeps a block of zeros from dividing by zero.
    tiny = torch.finfo(torch.float32).tiny
    scale = (blocks.abs().amax((1, 3)) / FP8_MAX).clamp(min=tiny)
    data = (blocks / scale[:, None, :, None]).flatten(2).flatten(0, 1)
    return BlockScaled(data[:rows, :cols].to(torch.float8_e4m3fn).contiguous(), scale)


def matrix(weight: Tensor | BlockScaled, dtype: torch.dtype) -> Tensor:
    """`weight` as a plain tensor of `dtype`; itself if it is one."""
    if isinstance(weight, BlockScaled):
        return weight.dequantise(dtype)
    return weight.to(dtype)


def pick(weight: Tensor | BlockScaled, index: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices `index` of a stack in `dtype`; nothing else of it is read.

    Args:
        weight: [experts, rows, cols].
        index: integers [n] on the same device.
        dtype: of the result, [n, rows, cols].
    """
    if isinstance(weight, Tensor):
        return weight.index_select(0, index).to(dtype)
    # Indexing is not implemented for fp8 everywhere, for bytes it is.
    data = weight.data.view(torch.uint8).index_select(0, index)
    scale = weight.scale.index_select(0, index)
    return BlockScaled(data.view(torch.float8_e4m3fn), scale).dequantise(dtype)


def stack(weights: Sequence[Tensor | BlockScaled]) -> Tensor | BlockScaled:
    """Matrices of one shape as [count, rows, cols], block-scaled if all of them are."""
    return _combine(torch.stack, weights, keep=True)


def join(weights: Sequence[Tensor | BlockScaled]) -> Tensor | BlockScaled:
    """Matrices [rows, cols] one below the other.

    Block-scaled if all of them are and each begins where a block of the whole does;
    else those that are block-scaled are dequantised to float32.
    """
    above = [len(each.data) for each in weights[:-1] if isinstance(each, BlockScaled)]
    keep = all(rows % QUANT_BLOCK == 0 for rows in above)
    return _combine(torch.cat, weights, keep=keep)


def _combine(
    how: Callable[[list[Tensor]], Tensor],
    weights: Sequence[Tensor | BlockScaled],
    *,
    keep: bool,
) -> Tensor | BlockScaled:
    scaled = [each for each in weights if isinstance(each, BlockScaled)]
    if keep and len(scaled) == len(weights):
        # Joining is not implemented for fp8 everywhere, for bytes it is.
        data = how([each.data.view(torch.uint8) for each in scaled])
        scale = how([each.scale for each in scaled])
        return BlockScaled(data.view(torch.float8_e4m3fn), scale)
    return how(
        [
            each if isinstance(each, Tensor) else each.dequantise(torch.float32)
            for each in weights
        ]
    )


def random_weights(
    spec: LayerSpec, device: torch.device, seed: int, pass_index: int
) -> Weights:
    """Weights of one rank's shape, made on `device`.

    Matrices are normal with standard deviation 1 / sqrt(fan in) before sharding, so
    that a slice looks like the slice of a whole; norms are normal around 1.
    """
    weights: dict[str, Tensor | BlockScaled] = {}
    for table in layer_tensors(spec):
        tensor = torch.empty(table.shape, dtype=TORCH_DTYPES[spec.dtype], device=device)
        mean, spread = (1.0, _NORM_SPREAD)
        if table.fan_in is not None:
            mean, spread = 0.0, table.fan_in**-0.5
        draw = generator(device, seed, "weights", pass_index, table.name)
        tensor.normal_(mean, spread, generator=draw)
        weights[table.name] = _stored(tensor, table, spec)
    return weights


def shard(whole: Weights, spec: LayerSpec, rank: int) -> Weights:
    """One rank's slice of a whole layer's weights, as `spec` stores them.

    Query heads and the width of experts or MLP are divided; KV heads are divided, or
    replicated when ranks outnumber them; ``o`` and ``down`` are divided by input
    column, so that the ranks' outputs are partial sums; norms and router are whole.

    Block-scaled tensors are quantised after slicing. Those of `whole` that already are
    keep their blocks where `keeps_blocks`, and else are dequantised to float32 first.

    Args:
        whole: the tensors of the layer before sharding, in any float type. The
            result shares their memory where nothing had to be changed.
        spec: fixes the number of ranks (`tp`) and the stored types.
        rank: 0 to tp - 1.
    """
    return {
        table.name: _shard(whole[table.name], table, spec, rank)
        for table in layer_tensors(spec)
    }


def keeps_blocks(
    whole: BlockScaled, table: TensorSpec, spec: LayerSpec, rank: int
) -> bool:
    """Whether a rank's slice is cut between blocks, and stored in them."""
    cut = _cut(table, spec, rank)
    length = whole.data.shape[cut.dim]
    return table.dtype(spec) is DType.FLOAT8_E4M3 and all(
        border % QUANT_BLOCK == 0 or border == length
        for start, count in cut.ranges
        for border in (start, start + count)
    )


class _Cut(NamedTuple):
    """What a rank takes of a tensor."""

    dim: int
    ranges: tuple[tuple[int, int], ...]
    """(start, count) along `dim`, joined; if there are none, all of it."""

    def of(self, tensor: Tensor) -> Tensor:
        """The slice of `tensor`."""
        if not self.ranges:
            return tensor
        parts = [tensor.narrow(self.dim, *each) for each in self.ranges]
        return torch.cat(parts, self.dim)

    def of_blocks(self, weight: BlockScaled) -> BlockScaled:
        """The slice of `weight`, where it is cut between blocks."""
        blocks = _Cut(
            self.dim,
            tuple(
                (start // QUANT_BLOCK, -(-count // QUANT_BLOCK))
                for start, count in self.ranges
            ),
        )
        data = self.of(weight.data.view(torch.uint8)).view(torch.float8_e4m3fn)
        return BlockScaled(data, blocks.of(weight.scale))


def _cut(table: TensorSpec, spec: LayerSpec, rank: int) -> _Cut:
    if spec.tp == 1 or table.split is Split.NONE:
        return _Cut(-1, ())
    if table.split is Split.QKV_ROWS:
        return _cut_heads(spec, rank)
    if table.split is Split.COLUMNS:
        width = table.shape[-1]
        return _Cut(-1, ((rank * width, width),))
    width = table.shape[-2] // 2
    return _Cut(-2, ((rank * width, width), ((spec.tp + rank) * width, width)))


def _cut_heads(spec: LayerSpec, rank: int) -> _Cut:
    model = spec.model
    first_query = rank * spec.query_heads
    first_key = model.query_heads + rank * model.kv_heads // spec.tp
    heads = (
        (first_query, spec.query_heads),
        (first_key, spec.kv_heads),
        (first_key + model.kv_heads, spec.kv_heads),
    )
    dim = model.head_dim
    return _Cut(-2, tuple((first * dim, count * dim) for first, count in heads))


def _shard(
    whole: Tensor | BlockScaled, table: TensorSpec, spec: LayerSpec, rank: int
) -> Tensor | BlockScaled:
    cut = _cut(table, spec, rank)
    if isinstance(whole, Tensor):
        return _stored(cut.of(whole), table, spec)
    if keeps_blocks(whole, table, spec, rank):
        return cut.of_blocks(whole)
    if whole.data.dim() == 2:  # noqa: PLR2004 (a matrix)
        return _stored(cut.of(whole.dequantise(torch.float32)), table, spec)
    # One matrix at a time, as in `quantise`.
    return stack([_shard(each, table, spec, rank) for each in whole.matrices()])


def _stored(tensor: Tensor, table: TensorSpec, spec: LayerSpec) -> Tensor | BlockScaled:
    dtype = table.dtype(spec)
    if dtype is DType.FLOAT8_E4M3:
        return quantise(tensor)
    return tensor.to(TORCH_DTYPES[dtype]).contiguous()
