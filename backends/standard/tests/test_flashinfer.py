"""What flashinfer is asked for; tests/gpu has what it answers."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.standard.tests.bench import DENSE, MOE, Bench, choosing, small
from layerscope.errors import BackendError
from layerscope_standard import flashinfer_attention
from layerscope_standard.attention import make_attention
from layerscope_standard.chosen import ChosenAttention, chosen_attention
from layerscope_standard.selection import FLASHINFER, Choice


class Wrapper:
    """Notes what it is called with."""

    made: list["Wrapper"]

    def __init__(self, workspace: Tensor, layout: str, **buffers: object) -> None:
        self.workspace, self.layout, self.buffers = workspace, layout, buffers
        self.planned: tuple[Any, ...] = ()
        self.ran: list[tuple[Any, ...]] = []
        self.made.append(self)

    def plan(self, *args: object, **options: object) -> None:
        """Note it."""
        self.planned = (*args, options)

    def run(self, *args: object, **options: object) -> None:
        """Note it."""
        self.ran.append((*args, options))


@pytest.fixture
def wrappers(monkeypatch: pytest.MonkeyPatch) -> list[Wrapper]:
    """All that are made, by a flashinfer that computes nothing."""
    monkeypatch.setattr(Wrapper, "made", [], raising=False)
    monkeypatch.setattr(flashinfer_attention, "WORKSPACE_FLOATS", 16)
    monkeypatch.setattr("layerscope_standard.chosen.WORKSPACE_FLOATS", 16)
    for name in ("flashinfer", "flashinfer.norm"):
        module: Any = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.BatchPrefillWithPagedKVCacheWrapper = Wrapper
        module.get_norm_module = lambda: None
        module.rmsnorm = lambda *_, **__: None
        monkeypatch.setitem(sys.modules, name, module)
    return Wrapper.made


def test_a_step_is_planned_once(bench: Bench, wrappers: list[Wrapper]) -> None:
    """Rows, pages in use and the tokens of the last one, of every request."""
    spec = small(MOE, requests=2, draft_tokens=2, page_size=7, context=61)
    chosen = choosing(bench, {"attention": Choice(FLASHINFER)})
    problem = chosen.problem(spec)
    made = chosen_attention(make_attention(problem, chosen.workshop()))
    assert isinstance(made, ChosenAttention)
    operations = made.operations(1)
    assert [each.role for each in operations] == [
        *("norm", "qkv", "rope_kv_write", "attention")
    ]
    (wrapper,) = wrappers
    assert wrapper.workspace is made.workspace
    assert (wrapper.layout, wrapper.buffers["backend"]) == ("NHD", "fa2")
    rows, pages, indices, last, *sizes, options = wrapper.planned
    assert rows.tolist() == [0, 3, 6]
    assert pages.tolist() == [0, 10, 20]  # 64 tokens on pages of seven
    table = problem.caches[1].page_table
    assert torch.equal(indices, table[:, :10].flatten())
    assert last.tolist() == [1, 1]
    assert sizes == [spec.query_heads, spec.kv_heads, spec.model.head_dim, 7]
    assert options["causal"] is True

    operations[3].enqueue()
    first, (queries, (keys, values), given) = wrapper.ran
    assert first[0] is made.queries  # loads the kernels
    cache, out = problem.caches[1], problem.buffers[1].attn_out
    assert queries is made.queries
    assert (keys is cache.key, values is cache.value) == (True, True)
    assert given["out"].data_ptr() == out.data_ptr()
    assert given["enable_pdl"] is False  # a CPU has none


@pytest.mark.usefixtures("wrappers")
def test_a_product_in_parts_cannot_be_added(bench: Bench) -> None:
    """The norm of flashinfer adds nothing, and torch adds one part."""
    for splits, roles in ((1, ["o_proj", "add", "post_norm"]), (2, [])):
        choices = {
            "o_proj": Choice(options={"splits": splits}),
            "post_norm": Choice(FLASHINFER),
        }
        chosen = choosing(bench, choices)
        problem = chosen.problem(small(DENSE, draft_tokens=0, context=20))
        made = chosen_attention(make_attention(problem, chosen.workshop()))
        if roles:
            assert [each.role for each in made.o_proj(0)] == roles
        else:
            with pytest.raises(BackendError, match="after a product in 2 parts"):
                made.o_proj(0)
