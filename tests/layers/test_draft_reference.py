import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from layerscope.layers.draft import (
    DraftOptions,
    DraftPass,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_reference import bias, build_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance, restart
from layerscope.layers.spec import DType
from layerscope.layers.weights import BlockScaled, matrix, quantise
from layerscope.plugin import Numerics
from layerscope.regions import Mark, Region, observing, region
from tests.layers.drafts import (
    PAPER,
    draft_all,
    draft_context,
    paper_draft,
    reference_draft,
    tied_rows,
    unbiased_draft,
)

QWEN3_VOCABULARY = 151936


def zeros(*shape: int) -> Tensor:
    """Base logits that leave everything to the bias."""
    return torch.zeros(*shape)


@pytest.mark.parametrize("weight_dtype", DType)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_each_token_follows_from_the_one_before(
    dtype: DType, weight_dtype: DType
) -> None:
    """Greedy tokens by hand, in every stored type, ties going to the lowest id."""
    spec = msgspec.structs.replace(PAPER, dtype=dtype, weight_dtype=weight_dtype)
    problem = paper_draft(spec, zeros(1, 1, 5, 1, 6), torch.tensor([[0]]))
    assert draft_all(problem) == [[[1], [5], [3], [4], [0]]]


def test_requests_are_drafted_side_by_side() -> None:
    """Each request follows its own last token; another one changes all that follow."""
    spec = msgspec.structs.replace(PAPER, requests=3)
    problem = paper_draft(spec, zeros(1, 1, 5, 3, 6), torch.tensor([[0, 2, 0]]))
    assert draft_all(problem) == [
        [[1, 3, 1], [5, 4, 5], [3, 0, 3], [4, 1, 4], [0, 5, 0]]
    ]


def test_base_logits_count_at_their_own_position() -> None:
    """Half a logit breaks one tie the other way, and what follows changes with it."""
    base = zeros(1, 1, 5, 1, 6)
    base[0, 0, 0, 0, 3] = 0.5  # 3 instead of 1
    base[0, 0, 3, 0, 5] = 1.5  # 1 would give 5 a bias of 2; from 0 it has none
    problem = paper_draft(PAPER, base, torch.tensor([[0]]))
    assert draft_all(problem) == [[[3], [4], [0], [5], [3]]]


def test_a_single_token_is_drafted() -> None:
    """The least draft is one token a request."""
    spec = msgspec.structs.replace(PAPER, tokens=1)
    problem = paper_draft(spec, zeros(1, 1, 1, 1, 6), torch.tensor([[5]]))
    assert draft_all(problem) == [[[3]]]


def test_a_pass_starts_from_the_last_token_of_the_one_before() -> None:
    """Two passes of four tokens are one chain of eight."""
    spec = msgspec.structs.replace(PAPER, tokens=4)
    problem = paper_draft(spec, zeros(1, 2, 4, 1, 6), torch.tensor([[0]]))
    assert draft_all(problem) == [[[1], [5], [3], [4]], [[0], [1], [5], [3]]]


def test_a_slice_is_drafted_from_alone() -> None:
    """A rank with the first three of six tokens never chooses another one.

    It may start from any of the six.
    """
    spec = msgspec.structs.replace(PAPER, tp=2, shard_shaped=True)
    problem = paper_draft(spec, zeros(1, 1, 5, 1, 3), torch.tensor([[5]]))
    assert draft_all(problem) == [[[1], [2], [1], [2], [1]]]


def test_every_replay_drafts_from_new_inputs() -> None:
    """As the feed advances, both base logits and last tokens are those of the step."""
    base = zeros(3, 1, 5, 1, 6)
    base[2, 0, :, 0, 4] = 9.0
    problem = paper_draft(PAPER, base, torch.tensor([[0], [2], [0]]))
    step, tokens = reference_draft(problem), []
    restart(problem.feed, hold=1)
    for _ in range(4):
        advance(problem.feed)
        step.run(0)
        tokens.append(problem.passes[0].chosen.flatten().tolist())
    assert tokens == [
        [1, 5, 3, 4, 0],
        [3, 4, 0, 1, 5],
        [4, 4, 4, 4, 4],
        [1, 5, 3, 4, 0],
    ]


def test_a_replay_overwrites_all_poison() -> None:
    """After poison and a replay every token of every pass is drafted."""
    problem = paper_draft(PAPER, zeros(1, 2, 5, 1, 6), torch.tensor([[0]]))
    step = reference_draft(problem)
    poison_draft(problem)
    for index in range(2):
        step.run(index)
    assert [int(each.chosen.min()) for each in problem.passes] == [0, 0]


def test_every_token_has_a_role() -> None:
    """Kernels are named after the token they draft, in order, within the region."""
    marks: list[Mark] = []

    class Listener:
        def opened(self, mark: Mark) -> None:
            marks.append(mark)

        def closed(self, mark: Mark) -> None:
            del mark

    spec = msgspec.structs.replace(PAPER, tokens=3)
    step = reference_draft(paper_draft(spec, zeros(1, 1, 3, 1, 6), torch.tensor([[0]])))
    with observing(Listener()), region(Region.DRAFT):
        step.run(0)
    assert marks == [
        Mark("region", "draft"),
        Mark("role", "token_1"),
        Mark("role", "token_2"),
        Mark("role", "token_3"),
    ]


def test_the_reference_reads_w2_for_every_token() -> None:
    """What five tokens move, operand by operand, and how often w2 is among it."""
    step = reference_draft(
        paper_draft(PAPER, zeros(1, 1, 5, 1, 6), torch.tensor([[0]]))
    )
    gather = 8 + 8 + 8  # the token, its row of w1, the copy of the row
    product = 8 + 48 + 24  # the row, w2, the bias
    total = 24 + 24 + 24  # base logits, bias, logits
    choice = 24 + 8  # logits, the token
    assert step.touched_bytes() == 5 * (gather + product + total + choice)
    assert step.w2_reads == 5


def test_only_the_problems_own_draft_is_planned() -> None:
    """The reference agrees to draft its problem's spec, and no other."""
    problem = paper_draft(PAPER, zeros(1, 1, 5, 1, 6), torch.tensor([[0]]))
    built = build_draft(draft_context(problem))
    assert built.plan(msgspec.structs.replace(PAPER)) is built.step
    assert built.plan(msgspec.structs.replace(PAPER, tokens=4)) is None
    assert built.device_bytes == 0


@pytest.mark.parametrize("weight_dtype", DType)
def test_the_bias_keeps_the_precision_of_its_weights(weight_dtype: DType) -> None:
    """It is float32 to the last bits; rounded to bfloat16 it would be 1e-2 off."""
    draw = torch.Generator().manual_seed(3)
    w1 = torch.randn(300, 256, generator=draw).bfloat16()
    w2: Tensor | BlockScaled = torch.randn(300, 256, generator=draw) / 16
    if weight_dtype is DType.FLOAT8_E4M3:
        w2 = quantise(matrix(w2, torch.float32))
    elif weight_dtype is DType.BFLOAT16:
        w2 = matrix(w2, torch.bfloat16)
    before = torch.arange(300)
    each = DraftPass(w1=w1, w2=w2, base=zeros(1), previous=before, chosen=before)
    exact = w1.double() @ matrix(w2, torch.float64).T
    assert bias(each, before).dtype is torch.float32
    assert float((bias(each, before).double() - exact).abs().max()) < 1e-5


@pytest.mark.parametrize("side_by_side", [False, True])
def test_ties_in_a_long_row_go_to_the_lowest_id(*, side_by_side: bool) -> None:
    """However a row of a whole vocabulary is split for vectors and threads."""
    rows, lowest = tied_rows(QWEN3_VOCABULARY)
    problem = unbiased_draft(rows.unsqueeze(0 if side_by_side else 1))
    reference_draft(problem).run(0)
    assert problem.passes[0].chosen.flatten().tolist() == lowest


@st.composite
def specs(draw: st.DrawFn) -> DraftSpec:
    """Any small draft, slices that do not divide the vocabulary included."""
    tp = draw(st.integers(1, 3))
    return DraftSpec(
        model="any",
        vocab_size=draw(st.integers(tp + 1, 200)),
        dtype=draw(st.sampled_from([DType.FLOAT32, DType.BFLOAT16])),
        weight_dtype=draw(st.sampled_from(DType)),
        rank=draw(st.integers(1, 140)),
        requests=draw(st.integers(1, 3)),
        tokens=draw(st.integers(1, 6)),
        tp=tp,
        shard_shaped=tp > 1,
    )


def exact_logits(each: DraftPass) -> NDArray[np.float64]:
    """float64 [tokens, requests, vocab_slice], after the tokens that were chosen."""
    w1, w2, base, previous, chosen = (
        np.asarray(tensor.tolist())
        for tensor in (
            each.w1,
            matrix(each.w2, torch.float64),
            each.base,
            each.previous,
            each.chosen,
        )
    )
    before = np.concatenate((previous[None], chosen[:-1]))
    logits: NDArray[np.float64] = base + np.einsum("pri,ti->prt", w1[before], w2)
    return logits


@settings(max_examples=60)
@given(spec=specs(), seed=st.integers(0, 1000), step=st.integers(0, 1))
def test_the_reference_drafts_what_float64_would(
    spec: DraftSpec, seed: int, step: int
) -> None:
    """Every token is the exact argmax, or below it by less than the bound.

    Where two logits are equal, as in planted ties, it is the lower token.
    """
    problem = make_draft(spec, DraftOptions(passes=2, steps=2, seed=seed))
    restart(problem.feed, hold=1, step=step)
    advance(problem.feed)
    draft_all(problem)
    for index, each in enumerate(problem.passes):
        assert shortfall(problem, index) <= Numerics().draft_logit
        logits = exact_logits(each)
        *_, second, best = np.sort(logits, -1).transpose(2, 0, 1)
        clear = (best - second > 1e-3) | (best == second)
        exact = logits.argmax(-1)
        assert (np.asarray(each.chosen.tolist()) == exact)[clear].all()
        assert clear.any()
