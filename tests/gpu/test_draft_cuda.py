from collections.abc import Callable
from itertools import groupby, product

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.players import head_for
from layerscope.layers.draft import (
    DraftOptions,
    DraftProblem,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance, restart
from layerscope.layers.spec import DType
from layerscope.layers.weights import matrix
from layerscope.plugin import Numerics
from layerscope.regions import Region, layer_pass, region
from tests.layers.drafts import reference_draft, tied_rows, unbiased_draft

PASSES = 3
STEPS = 4
TYPES = [
    pytest.param(DType.BFLOAT16, DType.BFLOAT16, id="bf16"),
    pytest.param(DType.BFLOAT16, DType.FLOAT8_E4M3, id="fp8"),
    pytest.param(DType.FLOAT32, DType.FLOAT32, id="fp32"),
]


def draft(dtype: DType, weight_dtype: DType, **changes: int) -> DraftProblem:
    """Five tokens of two requests over a vocabulary that nothing divides."""
    sizes = {"vocab_size": 20_011, "requests": 2} | changes
    spec = DraftSpec(
        model="any",
        dtype=dtype,
        weight_dtype=weight_dtype,
        shard_shaped=sizes.get("tp", 1) > 1,
        **sizes,
    )
    options = DraftOptions(passes=PASSES, steps=STEPS, device="cuda")
    return make_draft(spec, options)


def body_of(problem: DraftProblem) -> Callable[[int], None]:
    """What a replay of `problem` by the reference runs."""
    step, head = reference_draft(problem), head_for(problem.feed)

    def body(passes: int) -> None:
        with region(Region.OTHER):
            head()
        for index in range(passes):
            with layer_pass(index), region(Region.DRAFT):
                step.run(index)

    return body


def tokens(problem: DraftProblem) -> list[list[list[int]]]:
    """All drafted tokens: [passes][tokens][requests]."""
    return [each.chosen.tolist() for each in problem.passes]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tp": 4},
        {"requests": 1, "tokens": 1},
        {"requests": 17, "rank": 100},
        {"vocab_size": 151_936, "requests": 1},
    ],
)
@pytest.mark.parametrize(("dtype", "weight_dtype"), TYPES)
def test_the_reference_drafts_the_best_tokens(
    dtype: DType, weight_dtype: DType, changes: dict[str, int]
) -> None:
    """Every token is within the bound of the best one, and ties are the lowest.

    Planted ties are looked for beside `shortfall`, which judges them too.
    """
    problem = draft(dtype, weight_dtype, **changes)
    step, spec = reference_draft(problem), problem.spec
    restart(problem.feed, hold=1)
    for number in range(STEPS):
        advance(problem.feed)
        poison_draft(problem)
        for index, each in enumerate(problem.passes):
            step.run(index)
            assert shortfall(problem, index) <= Numerics().draft_logit
            weightless = matrix(each.w2, torch.float32).abs().amax(1) == 0
            low = int(weightless.nonzero()[0])
            for token, request in product(range(spec.tokens), range(spec.requests)):
                if (number + index + token + request) % 3 == 0:
                    assert int(each.chosen[token, request]) == low


@pytest.mark.parametrize("side_by_side", [False, True])
def test_ties_in_a_long_row_go_to_the_lowest_id(*, side_by_side: bool) -> None:
    """However a row of a whole vocabulary is split over blocks and threads."""
    rows, lowest = tied_rows(151_936)
    problem = unbiased_draft(rows.cuda().unsqueeze(0 if side_by_side else 1))
    reference_draft(problem).run(0)
    assert problem.passes[0].chosen.flatten().tolist() == lowest


@pytest.mark.parametrize(("dtype", "weight_dtype"), TYPES)
def test_every_launch_of_a_graph_drafts_from_new_logits(
    player: GraphPlayer, dtype: DType, weight_dtype: DType
) -> None:
    """The captured draft gives other tokens at every step, and the same ones again."""
    problem = draft(dtype, weight_dtype)
    replay = player.capture(body_of(problem), PASSES)
    restart(problem.feed, hold=1)
    drafted = []
    for _ in range(STEPS + 1):
        poison_draft(problem)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        for index in range(PASSES):
            assert shortfall(problem, index) <= Numerics().draft_logit
        drafted.append(tokens(problem))
    assert drafted[STEPS] == drafted[0]
    for index in range(PASSES):
        assert len({str(step[index]) for step in drafted}) == STEPS


def test_a_graph_drafts_what_its_operators_draft(player: GraphPlayer) -> None:
    """Launched or run one by one, the tokens of a step are the same."""
    problem = draft(DType.BFLOAT16, DType.BFLOAT16)
    body = body_of(problem)
    replay = player.capture(body, PASSES)
    drafted = []
    for run in (replay.launch, lambda: body(PASSES)):
        restart(problem.feed, hold=1, step=2)
        poison_draft(problem)
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
        drafted.append(tokens(problem))
    assert drafted[0] == drafted[1]


def test_a_captured_draft_is_a_chain_of_named_kernels(player: GraphPlayer) -> None:
    """Every node has its pass, the region ``draft`` and the role of its token."""
    problem = draft(DType.BFLOAT16, DType.BFLOAT16)
    head, *nodes = player.capture(body_of(problem), PASSES).nodes
    assert (head.region, head.role) == (Region.OTHER, None)
    places = [(node.pass_index, node.region, node.role) for node in nodes]
    assert [place for place, _ in groupby(places)] == [
        (index, Region.DRAFT, f"token_{number}")
        for index in range(PASSES)
        for number in range(1, 6)
    ]
