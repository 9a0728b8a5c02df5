import pytest
import torch

from backends.torch_compile.tests.small import DENSE, MOE, problem_of, small
from layerscope.layers.attention import Rope, rotate
from layerscope.layers.spec import LayerSpec
from layerscope_torch_compile.attention import (
    Formulation,
    attention,
    fits_flex,
    formulation,
    make_pages,
    rotated,
)
from layerscope_torch_compile.layer import _attention_tensors, _make_tables


def test_rotation_is_that_of_the_reference() -> None:
    """Swapping halves and negating sines is the rotary embedding, bit by bit."""
    heads, cos, sin = (
        torch.randn(3, 5, 16),
        torch.randn(3, 1, 16),
        torch.randn(3, 1, 16),
    )
    first, second = sin.chunk(2, -1)
    found = rotated(heads, cos, torch.cat((-first, second), -1))
    assert torch.equal(found, rotate(heads, Rope(cos, sin)))


def test_pages_seen_whole_and_in_part() -> None:
    """The pages of the context are whole; those with later rows are masked."""
    spec = small(MOE, requests=2, context=15)  # 18 tokens on three pages
    table = torch.tensor([[4, 0, 2], [1, 5, 3]], dtype=torch.int32)
    pages = make_pages(spec, table)
    assert {name: tensor.tolist() for name, tensor in pages._asdict().items()} == {
        "first_token": [8, 0, 16, 16, 0, 8],
        "full": [[[2]], [[2]]],
        "full_pages": [[[[4, 0, 2]]], [[[1, 5, 3]]]],
        "partial": [[[1]], [[1]]],
        "partial_pages": [[[[2, 4, 0]]], [[[3, 1, 5]]]],
    }
    assert {tensor.dtype for tensor in pages} == {torch.int32}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("context", [0, 15, 16, 37])
def test_both_formulations_are_equal(context: int) -> None:
    """Flex attention over pages and plain loops over them attend to the same."""
    spec = small(MOE, context=context, page_size=16)
    problem = problem_of(spec)
    forms: tuple[Formulation, ...] = ("flex", "paged")
    results = []
    for form in forms:
        tables = _make_tables(problem, form)
        tensors = _attention_tensors(problem, tables, 0)
        attention(spec, form)(tensors)
        results.append(tensors.attn_out.clone())
    torch.testing.assert_close(*results)
    assert results[0].count_nonzero() == results[0].numel()


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (small(MOE, page_size=16), True),
        (small(MOE, page_size=128), True),
        (small(MOE, page_size=8), False),
        (small(MOE, page_size=48), False),
        (small(MOE, page_size=16, draft_tokens=63), True),
        (small(MOE, page_size=16, draft_tokens=64), False),
        (small(DENSE, page_size=16), False),
    ],
    ids=str,
)
def test_flex_needs_its_tiles(
    spec: LayerSpec,
    fits: bool,  # noqa: FBT001 (expected value)
) -> None:
    """Pages and groups of query heads are powers of two, and the rows one block."""
    assert fits_flex(spec) is fits


def test_a_cpu_has_plain_loops() -> None:
    """Flex attention is for GPUs, and only where it fits."""
    spec = small(MOE, page_size=16)
    assert formulation(spec, torch.device("cpu")) == "paged"
    assert formulation(spec, torch.device("cuda")) == "flex"
    assert formulation(small(MOE), torch.device("cuda")) == "paged"
