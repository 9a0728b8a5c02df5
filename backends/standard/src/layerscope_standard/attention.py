"""The regions attention and o_proj_all_reduce: what is launched, with what."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from layerscope.layers.attention import rope_tables
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.spec import LayerSpec
from layerscope.layers.weights import Weights
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.products import Product, product
from layerscope_standard.splitting import TILE_TOKENS, tiles_per_split
from layerscope_standard.workshop import Workshop, plain

_LOG2_E: Final = 1.4426950408889634
_NORM_THREADS: Final = 512
_ROPE_HEADS: Final = 4
"""Heads of rows that a warp, which is a block, rotates."""

_COMBINED_ELEMENTS: Final = 32
_MOST_STAGES: Final = {64: 3, 128: 3, 256: 2}
"""Tiles of tokens in flight in a block, by size of a head."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Both regions up to the MLP, for all passes of a problem."""

    problem: Problem
    workshop: Workshop
    qkv: Product
    o: Product
    cosines: Tensor
    """float32 [rows, head_dim / 2]."""

    sines: Tensor
    """float32 [rows, head_dim / 2]."""

    slots: tuple[Tensor, ...]
    """Of each pass: int64 [rows], from `problem.new_slots`."""

    normed: Tensor
    """[rows, hidden_size]."""

    queries: Tensor
    """[rows, query_heads, head_dim], rotated."""

    tiles: int
    """Of tokens, that a block of attention takes."""

    mixed: Tensor
    """float32 [splits, rows, query_heads, head_dim]: sums over values."""

    stats: Tensor
    """float32 [splits, rows, query_heads, 2]: greatest score, and the sum of shares."""

    def operations(self, index: int) -> list[Operation]:
        """The kernels of attention of pass `index`."""
        return [
            self.norm(index),
            self.qkv.operation(self.problem.weights[index]["qkv"], self.normed),
            self.rope(index),
            self.attention(index),
            self.combine(index),
        ]

    def norm(self, index: int) -> Operation:
        """Norm the rows of pass `index`."""
        problem, model = self.problem, self.problem.spec.model
        return self.workshop.operation(
            "norm",
            Kernel("norm", "norm_rows", _NORM_THREADS),
            (problem.spec.rows, 1, 1),
            (
                problem.buffers[index].hidden,
                plain(problem.weights[index]["input_norm"]),
                self.normed,
                model.hidden_size,
                model.rms_norm_eps,
            ),
        )

    def rope(self, index: int) -> Operation:
        """Rotate the queries of pass `index`, and write its new keys and values."""
        problem, spec = self.problem, self.problem.spec
        cache = problem.caches[index]
        heads = spec.query_heads + 2 * spec.kv_heads
        return self.workshop.operation(
            "rope_kv_write",
            Kernel("rope", "rope_kv_write", 32, (("HEAD_DIM", spec.model.head_dim),)),
            (-(-spec.rows * heads // _ROPE_HEADS), 1, 1),
            (
                self.qkv.parts,
                self.cosines,
                self.sines,
                *head_norms(problem.weights[index]),
                self.slots[index],
                self.queries,
                cache.key,
                cache.value,
                spec.rows,
                self.qkv.splits,
                spec.query_heads,
                spec.kv_heads,
                spec.model.rms_norm_eps,
            ),
        )

    def attention(self, index: int) -> Operation:
        """Attention of the queries of pass `index` over the splits of its context."""
        spec, cache = self.problem.spec, self.problem.caches[index]
        return self.workshop.operation(
            "attention",
            Kernel("attention", "attention", self.threads, self.defines),
            self.grid,
            (
                self.queries,
                cache.key,
                cache.value,
                cache.page_table,
                self.mixed,
                self.stats,
                spec.pages_per_request,
                spec.context,
                self.tiles,
                self.scale,
            ),
            self.shared_bytes,
        )

    @property
    def threads(self) -> int:
        """Of a block of attention."""
        return attention_threads(self.problem.spec)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Of attention: splits, KV heads, requests."""
        spec = self.problem.spec
        return len(self.mixed), spec.kv_heads, spec.requests

    @property
    def stages(self) -> int:
        """Tiles of tokens that a block has in flight."""
        return min(self.tiles, _MOST_STAGES[self.problem.spec.model.head_dim])

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        """The macros of code/attention.cuh."""
        spec = self.problem.spec
        return (
            ("HEAD_DIM", spec.model.head_dim),
            ("TOKENS", spec.tokens_per_request),
            ("GROUP", spec.query_heads // spec.kv_heads),
            ("MATRIX_ROWS", matrix_rows(spec)),
            ("PAGE_SIZE", spec.page_size),
            ("STAGES", self.stages),
        )

    @property
    def scale(self) -> float:
        """Of scores, which are exponents of two."""
        return float(self.problem.spec.model.head_dim**-0.5 * _LOG2_E)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block of attention."""
        return block_bytes(self.problem.spec, self.stages)

    def combine(self, index: int) -> Operation:
        """Join what the splits have found into the output of pass `index`."""
        spec = self.problem.spec
        dim = spec.model.head_dim
        return self.workshop.operation(
            "combine",
            Kernel("combine", "combine", 256, (("HEAD_DIM", dim),)),
            (spec.rows * spec.query_heads, dim // _COMBINED_ELEMENTS, 1),
            (
                self.mixed,
                self.stats,
                self.problem.buffers[index].attn_out,
                len(self.mixed),
            ),
        )

    def o_proj(self, index: int) -> list[Operation]:
        """The kernels of o_proj_all_reduce of pass `index`."""
        spec = self.problem.spec
        buffers = self.problem.buffers[index]
        weights = self.problem.weights[index]
        norm = self.workshop.operation(
            "post_norm",
            Kernel("norm", "add_norm_rows", _NORM_THREADS),
            (spec.rows, 1, 1),
            (
                self.o.parts,
                buffers.hidden,
                plain(weights["post_norm"]),
                buffers.mid_residual,
                buffers.mid_hidden,
                self.o.splits,
                spec.model.hidden_size,
                spec.model.rms_norm_eps,
            ),
        )
        return [self.o.operation(weights["o"], buffers.attn_out), norm]


def matrix_rows(spec: LayerSpec) -> int:
    """Rows of the matrices of attention: new rows times heads of a group, padded."""
    rows = spec.tokens_per_request * spec.query_heads // spec.kv_heads
    return -(-rows // 16) * 16


def block_bytes(spec: LayerSpec, stages: int) -> int:
    """Shared memory of a block of attention; as code/attention.cuh lays it out.

    Args:
        spec: the layer.
        stages: tiles of tokens in flight.
    """
    dim, rows = spec.model.head_dim, matrix_rows(spec)
    key, value, shares = key_stride(dim), 2 * dim + 16, 2 * TILE_TOKENS + 16
    return stages * TILE_TOKENS * (key + value) + rows * shares + 4 * rows * 4


def most_block_bytes(spec: LayerSpec) -> int:
    """The most that a block may ask for, its queries included where it makes them."""
    dim = spec.model.head_dim
    queries = matrix_rows(spec) * key_stride(dim)
    return block_bytes(spec, _MOST_STAGES[dim]) + queries


def attention_threads(spec: LayerSpec) -> int:
    """Of a block of attention: four warps for 16 rows."""
    return matrix_rows(spec) // 16 * 128


def key_stride(dim: int) -> int:
    """Bytes between keys, and between queries, in shared memory."""
    return 2 * dim + 64


def head_norms(weights: Weights) -> tuple[Tensor | None, Tensor | None]:
    """The norms of query and key [head_dim], where the family has them."""
    if "q_norm" not in weights:
        return None, None
    return plain(weights["q_norm"]), plain(weights["k_norm"])


def attention_shape(spec: LayerSpec) -> dict[str, int]:
    """What the time of attention depends on, as the selection knows it."""
    return {
        "rows": spec.rows,
        "requests": spec.requests,
        "heads": spec.query_heads,
        "kv_heads": spec.kv_heads,
        "context": spec.context,
    }


def make_attention(problem: Problem, workshop: Workshop) -> Attention:
    """Plan both regions for `problem`, and make their memory."""
    spec, weights = problem.spec, problem.weights[0]
    model, rows = spec.model, spec.rows
    rope = rope_tables(model, problem.positions, torch.float32)
    half = model.head_dim // 2
    all_tiles = -(-(spec.context + spec.tokens_per_request) // TILE_TOKENS)
    heads = spec.kv_heads * spec.requests
    choice = workshop.selection.choose("attention", attention_shape(spec))
    planned = tiles_per_split(all_tiles, heads, workshop.processors)
    tiles = choice.option("tiles", planned)
    splits = -(-all_tiles // tiles)
    bf16 = torch.bfloat16
    slots = tuple(new_slots(problem, index) for index in range(problem.passes))
    cosines, sines = (each[:, 0, :half].contiguous() for each in (rope.cos, rope.sin))
    workshop.constants.extend((*slots, cosines, sines))
    return Attention(
        problem=problem,
        workshop=workshop,
        qkv=product(workshop, "qkv", weights["qkv"], rows),
        o=product(workshop, "o_proj", weights["o"], rows),
        cosines=cosines,
        sines=sines,
        slots=slots,
        normed=workshop.empty(rows, model.hidden_size, dtype=bf16),
        queries=workshop.empty(rows, spec.query_heads, model.head_dim, dtype=bf16),
        tiles=tiles,
        mixed=workshop.empty(splits, rows, spec.query_heads, model.head_dim),
        stats=workshop.empty(splits, rows, spec.query_heads, 2),
    )
