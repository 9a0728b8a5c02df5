"""Paged attention by flashinfer's ``fa2``, which splits the context and joins it again.

Planned once, when the layer is built: a step has one shape. The query, cache and output
are taken as they are; pages in use are copied out of the page table once.
"""

from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.layers.problem import PagedKV
from layerscope.layers.spec import LayerSpec
from layerscope_standard.kernels import Operation
from layerscope_standard.triton_launching import is_programmatic
from layerscope_standard.workshop import Workshop

WORKSPACE_FLOATS: Final = 32 << 20
"""128 MB of partial sums, as flashinfer asks for; passes share it."""


def attention_operation(
    workshop: Workshop,
    spec: LayerSpec,
    cache: PagedKV,
    given: tuple[Tensor, Tensor],
    out: Tensor,
) -> Operation:
    """Attention of new rows over the cache: two kernels, with one role.

    Args:
        workshop: what the layer is made with.
        spec: of the layer.
        cache: of the pass.
        given: the queries [rows, query_heads, head_dim], rotated, and float32 memory
            [WORKSPACE_FLOATS].
        out: [rows, query_heads * head_dim], written.

    Raises:
        BackendError: flashinfer cannot build its kernels.
    """
    queries, workspace = given
    wrapper = _planned(spec, cache, workspace)
    pdl, mixed = is_programmatic(workshop), out.view(queries.shape)
    paged = cache.key, cache.value
    # It keeps tensors of its own, which no `Workshop` has made.
    workshop.constants.extend(
        value for value in vars(wrapper).values() if _is_on(value, workshop.device)
    )

    def enqueue() -> None:
        wrapper.run(queries, paged, out=mixed, enable_pdl=pdl)

    enqueue()  # kernels are loaded by their first launch, which no graph may capture
    return Operation("attention", enqueue)


def _is_on(value: object, device: torch.device) -> bool:
    return isinstance(value, Tensor) and value.device == device


def _planned(spec: LayerSpec, cache: PagedKV, workspace: Tensor) -> Any:  # noqa: ANN401
    requests, tokens = spec.requests, spec.context + spec.tokens_per_request
    pages = -(-tokens // spec.page_size)
    device = workspace.device
    numbers = torch.arange(requests + 1, dtype=torch.int32)
    rows, used = numbers * spec.tokens_per_request, numbers * pages
    indices = cache.page_table[:, :pages].flatten().contiguous()
    last = torch.full((requests,), (tokens - 1) % spec.page_size + 1, dtype=torch.int32)
    module = import_module("flashinfer")
    wrapper = module.BatchPrefillWithPagedKVCacheWrapper(
        workspace,
        "NHD",
        use_cuda_graph=True,
        qo_indptr_buf=rows.to(device),
        paged_kv_indptr_buf=used.to(device),
        paged_kv_indices_buf=torch.empty_like(indices),
        paged_kv_last_page_len_buf=last.to(device),
        backend="fa2",  # "auto" may take a backend that is not split, or multicast
    )
    try:
        wrapper.plan(
            rows,
            used,
            indices,
            last,
            spec.query_heads,
            spec.kv_heads,
            spec.model.head_dim,
            spec.page_size,
            causal=True,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
        )
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        msg = f"standard: flashinfer cannot build its attention: {first}"
        raise BackendError(msg) from error
    return wrapper
