import msgspec
import pytest
import torch
from torch import Tensor

from layerscope.layers import feed_forward
from layerscope.layers.routing import routing_bias
from layerscope.layers.spec import LayerSpec, ModelShape
from layerscope.layers.weights import BlockScaled, pick, random_weights

CPU = torch.device("cpu")
ROWS = 5


def drawn(model: ModelShape) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows [5, hidden_size] and weights, in float64."""
    draw = torch.Generator().manual_seed(2)
    hidden = torch.randn(ROWS, model.hidden_size, generator=draw, dtype=torch.float64)
    made = random_weights(LayerSpec(model=model), CPU, seed=0, pass_index=0)
    plain = {k: v.double() for k, v in made.items() if not isinstance(v, BlockScaled)}
    return hidden, plain


def gated(hidden: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """A gated MLP, written out."""
    gate, up = (hidden @ gate_up.t()).chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up) @ down.t()


def test_the_mlp_is_gated_by_silu(dense: ModelShape) -> None:
    """The dense MLP is down(silu(gate) * up)."""
    hidden, weights = drawn(dense)
    expected = gated(hidden, weights["gate_up"], weights["down"])
    torch.testing.assert_close(feed_forward.mlp(hidden, weights), expected)


@pytest.mark.parametrize("normalize", [True, False])
def test_experts_equal_a_dense_sum_over_all(
    moe: ModelShape, *, normalize: bool
) -> None:
    """The chosen experts add what a sum over all, weighted by the softmax, adds."""
    model = msgspec.structs.replace(moe, normalize_top_k=normalize)
    hidden, weights = drawn(model)
    ids = torch.empty(ROWS, 3, dtype=torch.int64)
    shares = feed_forward.route(hidden, weights, torch.zeros(ROWS, 8), model, ids)
    every = torch.softmax(hidden @ weights["router"].t(), -1)
    assert torch.equal(ids, every.argsort(-1, descending=True)[:, :3])
    mixed = every * torch.zeros_like(every).scatter(1, ids, 1.0)
    if normalize:
        mixed /= mixed.sum(-1, keepdim=True)
    outputs = torch.stack(
        [gated(hidden, weights["gate_up"][e], weights["down"][e]) for e in range(8)]
    )
    expected = torch.einsum("re,erh->rh", mixed, outputs)
    torch.testing.assert_close(feed_forward.moe(hidden, weights, ids, shares), expected)


def test_pinned_experts_have_their_natural_weights(moe: ModelShape) -> None:
    """The bias fixes the choice, and each chosen weight is softmax over the chosen."""
    hidden, weights = drawn(moe)
    logits = hidden @ weights["router"].t()
    unlikely = logits.argsort(-1)[:, :3]  # what no row would choose by itself
    ids = torch.empty(ROWS, 3, dtype=torch.int64)
    bias = routing_bias(unlikely, 8, CPU)
    shares = feed_forward.route(hidden, weights, bias, moe, ids)
    assert torch.equal(ids.sort(-1).values, unlikely.sort(-1).values)
    torch.testing.assert_close(shares, logits.gather(1, ids).softmax(-1))


@pytest.mark.parametrize("at_once", [1, 2, 4, 5])
def test_many_rows_take_turns(
    moe: ModelShape, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """No more weights than allowed are copied at once, and nothing else changes."""
    hidden, weights = drawn(moe)
    ids = torch.tensor([[0, 1, 2], [1, 2, 3], [7, 0, 4], [5, 6, 7], [2, 4, 6]])
    shares = torch.rand(ROWS, 3, dtype=torch.float64, generator=torch.Generator())
    whole = feed_forward.moe(hidden, weights, ids, shares)
    row_bytes = 3 * weights["gate_up"][0].nbytes
    limit = at_once * row_bytes + 1
    monkeypatch.setattr(feed_forward, "_MOST_GATHERED_BYTES", limit)
    gathered: list[int] = []

    def noted(weight: Tensor, index: Tensor, dtype: torch.dtype) -> Tensor:
        made = pick(weight, index, dtype)
        gathered.append(made.nbytes)
        return made

    monkeypatch.setattr(feed_forward, "pick", noted)
    torch.testing.assert_close(feed_forward.moe(hidden, weights, ids, shares), whole)
    assert len(gathered) == 2 * -(-ROWS // at_once)
    assert max(gathered) <= limit
