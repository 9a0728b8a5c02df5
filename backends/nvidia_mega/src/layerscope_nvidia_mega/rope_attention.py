"""The kernel that makes its own queries from the product of qkv, and attends."""

from typing import Final

from layerscope.layers.spec import LayerSpec
from layerscope_nvidia_mega.norm_product import PACKAGE
from layerscope_standard.attention import (
    Attention,
    attention_threads,
    head_norms,
    key_stride,
    matrix_rows,
)
from layerscope_standard.kernels import Kernel, Operation

ROLE: Final = "rope_kv_write+attention"

_MOST_THREADS: Final = {64: 640, 128: 640, 256: 384}
"""Of a block, by size of a head: with more, a thread has too few registers for it."""


def fits(spec: LayerSpec) -> bool:
    """Whether the kernel takes so many rows."""
    return not why_not(spec)


def why_not(spec: LayerSpec) -> str:
    """Why it does not fit, or nothing."""
    threads, dim = attention_threads(spec), spec.model.head_dim
    if dim not in _MOST_THREADS:
        sizes = ", ".join(map(str, _MOST_THREADS))
        return f"queries are made of {sizes} elements, not {dim}"
    most = _MOST_THREADS[dim]
    if threads <= most:
        return ""
    return (
        f"a block of attention has {threads} threads, more than the {most} with "
        f"registers to make queries of {dim} elements"
    )


def rope_attention(attention: Attention, index: int) -> Operation:
    """What the operations ``rope`` and ``attention`` of pass `index` do, in one.

    The new rows of the cache are written; `attention.queries` is not.

    Args:
        attention: of the standard chain, whose qkv product ends before.
        index: of the pass.
    """
    problem, spec = attention.problem, attention.problem.spec
    cache, dim = problem.caches[index], spec.model.head_dim
    return attention.workshop.operation(
        ROLE,
        Kernel(
            "rope_attention",
            "rope_attention",
            attention.threads,
            (*attention.defines, ("SPLITS", attention.qkv.splits)),
            PACKAGE,
        ),
        attention.grid,
        (
            attention.qkv.parts,
            attention.cosines,
            attention.sines,
            *head_norms(problem.weights[index]),
            cache.key,
            cache.value,
            cache.page_table,
            attention.mixed,
            attention.stats,
            spec.pages_per_request,
            spec.context,
            attention.tiles,
            attention.scale,
            spec.model.rms_norm_eps,
        ),
        attention.shared_bytes + matrix_rows(spec) * key_stride(dim),
    )
