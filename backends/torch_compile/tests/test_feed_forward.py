import msgspec
import pytest
import torch

from backends.torch_compile.tests.small import MOE, problem_of, small
from layerscope.layers.feed_forward import moe as reference_moe
from layerscope.layers.feed_forward import route
from layerscope_torch_compile.feed_forward import largest, moe
from layerscope_torch_compile.layer import _make_tables, _moe_tensors


def test_largest_are_those_of_topk() -> None:
    """The columns are the ids of torch.topk, and the sum is that of its values."""
    shares = torch.randn(7, 20).softmax(-1)
    columns, total = largest(shares, 5)
    values, ids = shares.topk(5)
    assert torch.equal(torch.stack(columns, 1), ids)
    torch.testing.assert_close(total, values.sum(-1))


def test_equal_shares_go_to_the_lower_expert() -> None:
    """Ties have one answer, and no expert is chosen twice."""
    columns, _ = largest(torch.tensor([[0.2, 0.3, 0.2, 0.3]]), 4)
    assert torch.stack(columns, 1).tolist() == [[1, 3, 0, 2]]


@pytest.mark.parametrize("is_normalised", [True, False])
def test_experts_are_those_of_the_reference(
    is_normalised: bool,  # noqa: FBT001 (a case)
) -> None:
    """Without pinned experts too, with and without normalised weights."""
    model = msgspec.structs.replace(MOE, normalize_top_k=is_normalised)
    problem = problem_of(small(model))
    assert problem.router_bias is not None
    problem.router_bias.zero_()
    tensors = _moe_tensors(problem, _make_tables(problem, "paged"), 1)
    tensors.hidden.normal_()
    tensors.residual.normal_()

    ids = torch.empty(3, 3, dtype=torch.int64)
    weights = problem.weights[1]
    shares = route(tensors.hidden, weights, tensors.bias, model, ids)
    added = reference_moe(tensors.hidden, weights, ids, shares)
    moe(problem.spec)(tensors)
    assert torch.equal(torch.stack(tensors.ids, 1), ids)
    torch.testing.assert_close(tensors.out, tensors.residual + added)
