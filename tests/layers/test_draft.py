from collections.abc import Iterator
from itertools import pairwise
from math import inf

import msgspec
import pytest
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.draft import (
    TIED,
    DraftOptions,
    DraftProblem,
    estimate_draft_bytes,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_reference import bias
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.layers.spec import DType
from layerscope.layers.weights import BlockScaled, matrix
from tests.layers.drafts import PAPER, draft_all, paper_draft

FP8 = DType.FLOAT8_E4M3


def small(**changes: object) -> DraftSpec:
    """Three tokens of two requests over 301 tokens, on one rank of one."""
    spec = DraftSpec(
        model="small",
        vocab_size=301,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT32,
        rank=130,
        requests=2,
        tokens=3,
    )
    return msgspec.structs.replace(spec, **changes)


def tensors(problem: DraftProblem) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a draft's problem by name, views of others too."""
    for index, each in enumerate(problem.passes):
        for name in ("w1", "w2", "base", "previous", "chosen"):
            value = getattr(each, name)
            if isinstance(value, BlockScaled):
                yield f"{index} {name} data", value.data
                yield f"{index} {name} scale", value.scale
            else:
                yield f"{index} {name}", value
    feed = problem.feed
    for name, pool in zip(("base", "previous"), feed.pools, strict=True):
        yield f"{name} rows", pool.rows
        yield f"{name} target", pool.target
    yield from (("step", feed.step), ("launches", feed.launches), ("hold", feed.hold))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": DType.BFLOAT16, "weight_dtype": DType.BFLOAT16},
        {"dtype": DType.BFLOAT16, "weight_dtype": DType.FLOAT32},
        {"weight_dtype": FP8},
        {"dtype": DType.BFLOAT16, "weight_dtype": FP8, "tp": 4, "shard_shaped": True},
        {"requests": 1, "tokens": 1, "rank": 1, "vocab_size": 2},
        {"requests": 9},
    ],
)
def test_the_estimate_is_what_is_allocated(changes: dict[str, object]) -> None:
    """The estimate is the exact sum of the memory behind all tensors."""
    options = DraftOptions(passes=3, steps=2)
    problem = make_draft(small(**changes), options)
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for _, tensor in tensors(problem)
    }
    assert sum(storages.values()) == estimate_draft_bytes(problem.spec, options)


def test_w2_has_the_bytes_that_the_spec_says() -> None:
    """Stored weights and block scales together, where blocks are ragged both ways."""
    w2 = make_draft(small(weight_dtype=FP8), DraftOptions(passes=1, steps=1))
    stored = w2.passes[0].w2
    assert isinstance(stored, BlockScaled)
    assert stored.data.shape == (301, 130)
    assert stored.scale.shape == (3, 2)
    assert stored.data.nbytes + stored.scale.nbytes == w2.spec.w2_bytes == 39_154


def test_shapes_are_those_of_one_rank() -> None:
    """w1 has the whole vocabulary, since any token may come before; w2 a slice."""
    spec = small(tp=4, shard_shaped=True)
    problem = make_draft(spec, DraftOptions(passes=2, steps=3))
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors(problem)}
    assert shapes == {
        **{f"{index} w1": (301, 130) for index in range(2)},
        **{f"{index} w2": (76, 130) for index in range(2)},
        **{f"{index} base": (3, 2, 76) for index in range(2)},
        **{f"{index} previous": (2,) for index in range(2)},
        **{f"{index} chosen": (3, 2) for index in range(2)},
        "base rows": (3, 2, 3, 2, 76),
        "base target": (2, 3, 2, 76),
        "previous rows": (3, 2),
        "previous target": (2,),
        "step": (1,),
        "launches": (1,),
        "hold": (1,),
    }


def test_the_seed_decides_everything() -> None:
    """The same seed makes equal tensors; another one other weights and inputs."""
    first, same, other = (
        dict(tensors(make_draft(small(), DraftOptions(passes=2, steps=2, seed=seed))))
        for seed in (7, 7, 8)
    )
    assert [name for name in first if not torch.equal(first[name], same[name])] == []
    drawn = ("0 w1", "1 w1", "0 w2", "1 w2", "base rows", "previous rows")
    assert [name for name in drawn if torch.equal(first[name], other[name])] == []


def test_a_pass_does_not_depend_on_how_many_there_are() -> None:
    """Weights, logits and last tokens of a short draft are those of a longer one."""
    short = make_draft(small(), DraftOptions(passes=2, steps=2))
    long = make_draft(small(), DraftOptions(passes=5, steps=4))
    same = dict(tensors(long))
    for name, tensor in tensors(short):
        if name[0] in "01":
            assert torch.equal(tensor, same[name]), name
    base, previous = (pool.rows for pool in short.feed.pools)
    longer_base, longer_previous = (pool.rows for pool in long.feed.pools)
    assert torch.equal(base, longer_base[:2, :2])
    assert torch.equal(previous, longer_previous[:2])


def equal_part(one: Tensor, two: Tensor) -> float:
    """How much of two tensors is equal; planted ties may be."""
    return float((one == two).double().mean())


def test_every_pass_and_step_is_drawn_anew() -> None:
    """No two passes share weights or logits, nor two steps logits or last tokens."""
    problem = make_draft(small(requests=8), DraftOptions(passes=3, steps=3))
    base, previous = (pool.rows for pool in problem.feed.pools)
    w1 = torch.stack([each.w1 for each in problem.passes])
    w2 = torch.stack([matrix(each.w2, torch.float32) for each in problem.passes])
    for drawn in (base, base[0], base[:, 0], previous, w1, w2):
        assert max(equal_part(*pair) for pair in pairwise(drawn)) < 0.1


def test_the_last_tokens_are_of_the_whole_vocabulary() -> None:
    """A rank that drafts from its slice may be handed the token of another one."""
    spec = small(requests=50, tp=4, shard_shaped=True)
    problem = make_draft(spec, DraftOptions(passes=1, steps=2))
    for tokens in problem.feed.pools[1].rows:
        assert 0 <= int(tokens.min()) < 76
        assert 225 < int(tokens.max()) < 301


def test_every_pass_has_its_own_memory() -> None:
    """No pass finds w1 or w2 of another in a cache, or overwrites its tokens."""
    problem = make_draft(small(), DraftOptions(passes=3, steps=1))
    for name in ("w1", "w2", "base", "chosen"):
        places = {getattr(each, name).data_ptr() for each in problem.passes}
        assert len(places) == 3, name


def test_passes_are_chained_in_memory() -> None:
    """A pass reads its first token where the pass before writes its last one."""
    first, *later = make_draft(small(), DraftOptions(passes=3, steps=1)).passes
    assert first.previous.tolist() != first.chosen[-1].tolist()
    for before, after in pairwise((first, *later)):
        assert after.previous.data_ptr() == before.chosen[-1].data_ptr()
        assert after.previous.shape == (2,)


def test_logits_and_bias_are_of_one_size() -> None:
    """Both are about standard normal, so that neither decides alone."""
    spec = small(vocab_size=4000, rank=256)
    each = make_draft(spec, DraftOptions(passes=1, steps=1)).passes[0]
    base, added = each.base[1, 0], bias(each, each.previous)
    assert float(base.std()) == pytest.approx(1.0, abs=0.05)
    assert float(added.std()) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("weight_dtype", DType)
def test_every_third_draft_has_a_tie_that_no_sum_can_part(weight_dtype: DType) -> None:
    """Two tokens have equal base logits above all others, and no weights of w2."""
    spec = small(weight_dtype=weight_dtype)
    problem = make_draft(spec, DraftOptions(passes=4, steps=3))
    base, pairs = problem.feed.pools[0].rows, []
    for index, each in enumerate(problem.passes):
        weightless = matrix(each.w2, torch.float32).abs().amax(1) == 0
        pair = weightless.nonzero().flatten().tolist()
        assert len(pair) == 2
        pairs.append(pair)
        for step in range(3):
            for token in range(3):
                for request in range(2):
                    logits = base[step, index, token, request]
                    if (step + index + token + request) % 3 == 0:
                        assert (logits == TIED).nonzero().flatten().tolist() == pair
                        assert int((logits > TIED / 4).sum()) == 2
                    else:
                        assert float(logits.max()) < TIED / 4
    assert [high - low for low, high in pairs[1::2]] == [1, 1]
    assert min(high - low for low, high in pairs[::2]) > 1


def test_the_reference_gives_a_planted_tie_to_the_lower_token() -> None:
    """What an arm is held to; two tokens are enough to tie."""
    spec = small(vocab_size=2, rank=1)
    problem = make_draft(spec, DraftOptions(passes=3, steps=1))
    drafted = draft_all(problem)
    tied = [
        drafted[index][token][request]
        for index in range(3)
        for token in range(3)
        for request in range(2)
        if (index + token + request) % 3 == 0
    ]
    assert tied == [0] * 6
    assert [shortfall(problem, index) for index in range(3)] == [0.0, 0.0, 0.0]


def test_advance_loads_the_logits_and_tokens_of_the_next_step() -> None:
    """All passes get new base logits, the first one new last tokens; then step 0."""
    problem = make_draft(small(), DraftOptions(passes=2, steps=3))
    base, previous = (pool.rows for pool in problem.feed.pools)
    for step in (0, 1, 2, 0):
        for index, each in enumerate(problem.passes):
            assert torch.equal(each.base, base[step, index])
        assert torch.equal(problem.passes[0].previous, previous[step])
        advance(problem.feed)


def test_a_draft_that_cannot_be_made_is_refused() -> None:
    """A problem is not made of a spec that its own check refuses."""
    with pytest.raises(InputError, match="--draft-tokens is 0"):
        make_draft(small(tokens=0), DraftOptions(passes=1, steps=1))


def test_poison_is_written_to_all_tokens_of_all_passes() -> None:
    """What is not drafted afterwards is no token; inputs stay as they are."""
    problem = make_draft(small(), DraftOptions(passes=2, steps=1))
    before = problem.passes[0].previous.clone(), problem.passes[1].base.clone()
    draft_all(problem)
    poison_draft(problem)
    assert [each.chosen.tolist() for each in problem.passes] == [[[-1] * 2] * 3] * 2
    assert torch.equal(problem.passes[0].previous, before[0])
    assert torch.equal(problem.passes[1].base, before[1])
    assert [shortfall(problem, index) for index in range(2)] == [inf, inf]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ((1, 5, 3, 4, 0), 0.0),
        ((1, 5, 3, 4, 2), 1.0),  # 2 is 1 below 0, 1 and 4
        ((1, 5, 1, 5, 3), 1.0),  # 1 is 1 below 3; what follows from 1 is right
        ((4, 0, 1, 5, 3), 2.0),  # 4 is 2 below 1 and 3
        ((4, 2, 3, 4, 0), 2.0),  # the worst counts, not the sum
        ((1, 5, 3, 4, 1), inf),  # as good as 0, but not the lowest
        ((3, 4, 0, 1, 5), inf),  # as good as 1
        ((1, 5, 3, 4, 6), inf),
        ((1, 5, 3, 4, -1), inf),
        ((-1, 5, 3, 4, 0), inf),
        ((2**40, 5, 3, 4, 0), inf),
    ],
)
@pytest.mark.parametrize("weight_dtype", [DType.FLOAT32, FP8])
def test_the_shortfall_is_that_of_the_worst_token(
    weight_dtype: DType, chosen: tuple[int, ...], expected: float
) -> None:
    """Each token is judged after the one that was chosen before it."""
    spec = msgspec.structs.replace(PAPER, weight_dtype=weight_dtype)
    problem = paper_draft(spec, torch.zeros(1, 1, 5, 1, 6), torch.tensor([[0]]))
    problem.passes[0].chosen.copy_(torch.tensor(chosen)[:, None])
    assert shortfall(problem, 0) == pytest.approx(expected, rel=1e-6)


def test_the_shortfall_is_over_all_requests() -> None:
    """One wrong token of one request is enough."""
    spec = msgspec.structs.replace(PAPER, requests=2, tokens=2)
    base, previous = torch.zeros(1, 1, 2, 2, 6), torch.tensor([[0, 2]])
    problem = paper_draft(spec, base, previous)
    shortfalls = []
    for chosen in (
        [[1, 3], [5, 4]],
        [[1, 3], [5, 2]],  # after 3, 2 is 1 below 4
        [[0, 3], [1, 4]],  # 0 is 1 below 1 and 3
        [[1, 5], [5, 3]],  # 5 is as good as 3
    ):
        problem.passes[0].chosen.copy_(torch.tensor(chosen))
        shortfalls.append(shortfall(problem, 0))
    assert shortfalls == [0.0, 1.0, 1.0, inf]


def test_a_near_tie_that_falls_the_other_way_is_hardly_short() -> None:
    """A gap of 2^-11 is told as such; the tokens after it are judged by themselves."""
    base = torch.zeros(1, 1, 5, 1, 6)
    base[0, 0, 0, 0, 1] = 2.0**-11
    problem = paper_draft(PAPER, base, torch.tensor([[0]]))
    problem.passes[0].chosen.copy_(torch.tensor([3, 4, 0, 1, 5])[:, None])
    assert shortfall(problem, 0) == 2.0**-11


@pytest.mark.parametrize("handed_on", [-1, 6])
def test_a_pass_that_was_handed_no_token_is_wrong(handed_on: int) -> None:
    """Its tokens follow from nothing, whatever they are."""
    problem = paper_draft(PAPER, torch.zeros(1, 2, 5, 1, 6), torch.tensor([[0]]))
    draft_all(problem)
    assert [shortfall(problem, index) for index in range(2)] == [0.0, 0.0]
    problem.passes[0].chosen[-1] = handed_on
    assert [shortfall(problem, index) for index in range(2)] == [inf, inf]


def test_a_slice_is_judged_by_itself() -> None:
    """Tokens of other ranks are none here, but may come before the first one."""
    spec = msgspec.structs.replace(PAPER, tp=2, shard_shaped=True)
    problem = paper_draft(spec, torch.zeros(1, 1, 5, 1, 3), torch.tensor([[5]]))
    shortfalls = []
    for chosen in ((1, 2, 1, 2, 1), (1, 2, 2, 1, 2), (3, 2, 1, 2, 1)):
        problem.passes[0].chosen.copy_(torch.tensor(chosen)[:, None])
        shortfalls.append(shortfall(problem, 0))
    assert shortfalls == [0.0, inf, inf]


def test_logits_that_are_no_numbers_are_wrong() -> None:
    """An arm that wrote over its inputs is not found right by accident."""
    problem = paper_draft(PAPER, torch.zeros(1, 1, 5, 1, 6), torch.tensor([[0]]))
    draft_all(problem)
    problem.passes[0].base[2, 0, 4] = float("nan")
    assert shortfall(problem, 0) == inf
