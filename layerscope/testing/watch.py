"""What code under test did: which tensors it wrote, which operators it ran."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from layerscope.layers.draft import DraftProblem
from layerscope.layers.feed import Feed
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.weights import BlockScaled
from layerscope.regions import Region

_aten = torch.ops.aten
_ALLOCATIONS: Final = {_aten.empty, _aten.empty_like, _aten.empty_strided}


class Watch:
    """Tensors by name, and what they held when the watch began."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._held = {name: tensor.clone() for name, tensor in tensors.items()}

    def written(self, allowed: Mapping[str, Tensor | None]) -> list[str]:
        """Names of tensors that changed where they may not.

        Args:
            allowed: by name, the indices of the first dimension that may change; None
                for all of them.
        """
        found = []
        for name, tensor in self._tensors.items():
            if name in allowed and allowed[name] is None:
                continue
            now, rows = tensor, allowed.get(name)
            if rows is not None:
                now = tensor.clone()
                now[rows] = self._held[name][rows]
            if not is_same(now, self._held[name]):
                found.append(name)
        return found


def is_same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit for bit: NaN equals itself, 0 is not -0."""
    return torch.equal(*(t.contiguous().view(torch.uint8) for t in (left, right)))


def layer_tensors(problem: Problem) -> dict[str, Tensor]:
    """Every tensor of `problem` by a name that an author knows it by.

    Caches are [slots, kv_heads, head_dim], so that a row is a slot.
    """
    found = {"hidden of pass 0": problem.buffers[0].hidden}
    found |= {"positions": problem.positions, "inputs": problem.inputs}
    if problem.router_bias is not None and problem.bias_pool is not None:
        found["router_bias"] = problem.router_bias
        found["bias_pool"] = problem.bias_pool
    for index in range(problem.passes):
        buffers, cache = problem.buffers[index], problem.caches[index]
        named = {
            field.name: getattr(buffers, field.name)
            for field in fields(buffers)
            if field.name != "hidden"  # it is `out` of the pass before
        }
        named["key cache"] = cache.key.flatten(0, 1)
        named["value cache"] = cache.value.flatten(0, 1)
        named["page table"] = cache.page_table
        for name, weight in problem.weights[index].items():
            named |= _parts(f"weight {name}", weight)
        found |= {f"{name} of pass {index}": each for name, each in named.items()}
    return found | _feed_tensors(problem.feed)


_WRITES: Final = {
    Region.ATTENTION: ("attn_out",),
    Region.O_PROJ_ALL_REDUCE: ("mid_hidden", "mid_residual"),
    Region.MOE: ("out",),
    Region.MLP: ("out",),
}
"""Fields of `Buffers` by region; attention also writes the new rows of the cache."""


def writable(
    problem: Problem, regions: Iterable[Region], index: int
) -> dict[str, Tensor | None]:
    """What `regions` of pass `index` may write, by the names of `layer_tensors`.

    Of each its rows, or None for all of it, in the order of execution.
    """
    found: dict[str, Tensor | None] = {}
    for region in regions:
        if region is Region.ATTENTION:
            slots = new_slots(problem, index)
            found |= {
                f"{name} cache of pass {index}": slots for name in ("key", "value")
            }
        found |= {f"{name} of pass {index}": None for name in _WRITES[region]}
    return found


def draft_tensors(problem: DraftProblem) -> dict[str, Tensor]:
    """Every tensor of `problem` by name."""
    found = {"previous of pass 0": problem.passes[0].previous}
    for index, each in enumerate(problem.passes):
        named = {"w1": each.w1, "base": each.base, "chosen": each.chosen}
        named |= _parts("w2", each.w2)
        found |= {f"{name} of pass {index}": tensor for name, tensor in named.items()}
    for number, pool in enumerate(problem.feed.pools):
        found[f"pool {number} of inputs"] = pool.rows
    return found | _feed_tensors(problem.feed)


def _parts(name: str, weight: Tensor | BlockScaled) -> dict[str, Tensor]:
    if isinstance(weight, BlockScaled):
        return {name: weight.data, f"scales of {name}": weight.scale}
    return {name: weight}


def _feed_tensors(feed: Feed) -> dict[str, Tensor]:
    return {
        "step counter": feed.step,
        "count of launches": feed.launches,
        "launches a step": feed.hold,
    }


class OperatorLog(TorchDispatchMode):
    """Notes every torch operator that computes while it is entered.

    Views and allocations do not.
    """

    names: list[str]
    """Of the operators, such as ``aten.add``, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.names = []

    def __torch_dispatch__(
        self,
        func: OpOverload[Any, Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the operator returns)
        """Note the operator, and run it."""
        del types
        if not func.is_view and func.overloadpacket not in _ALLOCATIONS:
            self.names.append(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def first_operators(names: list[str], count: int = 3) -> Iterator[str]:
    """The first few distinct names, for a sentence."""
    yield from list(dict.fromkeys(names))[:count]
