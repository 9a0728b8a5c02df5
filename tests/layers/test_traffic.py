from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from layerscope.layers.traffic import Traffic


def count(run: Callable[[], object]) -> int:
    """Bytes of what `run` does."""
    traffic = Traffic()
    with torch.no_grad(), traffic:
        run()
    return traffic.bytes


OUT = torch.ones(4, 8)
ROW = torch.ones(1, 8)
ONE = torch.tensor([3])
TWO = torch.tensor([1, 1])
COLUMNS = torch.zeros(1, 8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        # views and allocations
        (lambda x: x.view(8, 4).transpose(0, 1)[1:].detach(), 0),
        (torch.empty_like, 0),
        # inputs and results
        (lambda x: x + x, 3 * 128),
        (lambda x: x * 2.0, 2 * 128),
        (lambda x: x.sum(), 128 + 4),
        (lambda x: x.topk(2, -1), 128 + 4 * 2 * (4 + 8)),
        (lambda x: x.to(torch.bfloat16), 128 + 64),
        (lambda x: torch.matmul(x, x.t()), 128 + 128 + 4 * 4 * 4),
        (lambda x: torch.cat((x, x)), 2 * 128 + 256),
        # expanded dimensions
        (lambda x: x[:1].expand(4, 8) + x, 32 + 128 + 128),
        # in place, overwriting, out=
        (lambda x: x.add_(1), 2 * 128),
        (lambda x: x.add_(ROW), 2 * 128 + 32),
        (lambda x: x.fill_(1), 128),
        (lambda x: x.copy_(ROW), 32 + 128),
        (lambda x: torch.add(x, x, out=OUT), 3 * 128),
        # gathers and puts
        (lambda x: x.index_select(0, ONE), 8 + 32 + 32),
        (lambda x: torch.index_select(x, 0, ONE, out=ROW), 8 + 32 + 32),
        (lambda x: x[TWO], 16 + 64 + 64),
        (lambda x: x.gather(0, COLUMNS), 64 + 32 + 32),
        (lambda x: functional.embedding(TWO, x), 16 + 64 + 64),
        (lambda x: x.index_copy_(0, ONE, ROW), 8 + 32 + 32),
        (lambda x: x.index_put_((ONE,), ROW), 8 + 32 + 32),
    ],
)
def test_bytes_of_an_operator(
    run: Callable[[torch.Tensor], object], expected: int
) -> None:
    """Operators count what they read and write of a float32 [4, 8], 128 bytes."""
    operand = torch.ones(4, 8)
    assert count(lambda: run(operand)) == expected


def test_empty_tensors_cost_nothing() -> None:
    """A dimension of length 0 makes 0 bytes, whatever its stride."""
    nothing = torch.ones(3, 0)
    assert count(lambda: nothing + nothing) == 0
