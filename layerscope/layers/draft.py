"""The draft's problem: weights, base logits and tokens of every pass, and its proof.

Every pass has its own weights and base logits, so that its first token finds w2 in no
cache; its later tokens find what of w2 the cache holds, as in a server.
"""

from dataclasses import dataclass
from itertools import product
from math import inf, isnan
from typing import Final

import torch
from torch import Tensor

from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import Feed, Pool, make_feed
from layerscope.layers.seeding import generator
from layerscope.layers.spec import DType
from layerscope.layers.weights import TORCH_DTYPES, BlockScaled, matrix, quantise

TIED: Final = 64.0
"""Base logit of both tokens of a planted tie: above all that chance makes."""

_TIE_EVERY: Final = 3
"""Every third draft of a position has a planted tie."""


@dataclass(frozen=True, slots=True)
class DraftPass:
    """What one pass computes on; nothing in it ever moves."""

    w1: Tensor
    """[vocab_size, rank] in the spec's dtype: a row for the token before."""

    w2: Tensor | BlockScaled
    """[vocab_slice, rank] in the spec's weight dtype: a row for every token."""

    base: Tensor
    """float32 [tokens, requests, vocab_slice]: base logits, others at every step."""

    previous: Tensor
    """int64 [requests]: the last accepted tokens. From the second pass on these are
    the last tokens that the pass before chose, so that no pass can run ahead."""

    chosen: Tensor
    """int64 [tokens, requests]: written, the drafted tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftProblem:
    """One draft, `passes` times over, with base logits for the steps of a feed."""

    spec: DraftSpec
    device: torch.device
    passes: tuple[DraftPass, ...]
    feed: Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """How a draft's problem is made."""

    passes: int
    steps: int
    seed: int = 0
    device: str = "cpu"


def estimate_draft_bytes(spec: DraftSpec, options: DraftOptions) -> int:
    """Device bytes that `make_draft` keeps; the allocator's rounding comes on top."""
    base = spec.tokens * spec.requests * spec.vocab_slice * 4
    weights = spec.vocab_size * spec.rank * spec.dtype.bytes + spec.w2_bytes
    token_bytes = spec.requests * spec.tokens * 8
    per_pass = weights + token_bytes + base * (1 + options.steps)
    counters = 3
    return options.passes * per_pass + 8 * (
        (1 + options.steps) * spec.requests + counters
    )


def make_draft(spec: DraftSpec, options: DraftOptions) -> DraftProblem:
    """Allocate and fill a draft's problem, with the inputs of step 0 loaded.

    Base logits and the bias are standard normal. In every third draft of a position
    two tokens tie for the best logit exactly: their base logits are equal, and their
    rows of w2 are zero, so that no order of summation can part them.

    The same spec, options and device type make the same values; those of a pass or
    step do not depend on how many there are.

    Raises:
        InputError: `spec` cannot be run by any machine (`DraftSpec.check`).
    """
    spec.check()
    device = torch.device(options.device)
    ties = [_tied_tokens(spec, options.seed, index) for index in range(options.passes)]
    base = _make_base(spec, options, ties)
    previous = _make_previous(spec, options)
    loaded_base, loaded_previous = base[0].clone(), previous[0].clone()
    passes: list[DraftPass] = []
    for index, tied in enumerate(ties):
        w1, w2 = _make_weights(spec, options, index, tied)
        passes.append(
            DraftPass(
                w1=w1,
                w2=w2,
                base=loaded_base[index],
                previous=passes[-1].chosen[-1] if passes else loaded_previous,
                chosen=torch.zeros(
                    spec.tokens, spec.requests, dtype=torch.int64, device=device
                ),
            )
        )
    pools = (Pool(base, loaded_base), Pool(previous, loaded_previous))
    feed = make_feed(options.steps, pools, device)
    return DraftProblem(spec=spec, device=device, passes=tuple(passes), feed=feed)


def _tied_tokens(spec: DraftSpec, seed: int, index: int) -> list[int]:
    """Two tokens that tie in pass `index`: neighbours in every second pass.

    Neighbours are likely to meet in one thread of a kernel, others only at its end.
    """
    draw = generator(torch.device("cpu"), seed, "draft", "ties", index)
    low = int(torch.randint(spec.vocab_slice - 1, (), generator=draw))
    end = low + 2 if index % 2 else spec.vocab_slice
    return [low, int(torch.randint(low + 1, end, (), generator=draw))]


def _make_base(spec: DraftSpec, options: DraftOptions, ties: list[list[int]]) -> Tensor:
    """float32 [steps, passes, tokens, requests, vocab_slice]."""
    device = torch.device(options.device)
    picks = (spec.tokens, spec.requests)
    shape = (options.steps, options.passes, *picks, spec.vocab_slice)
    base = torch.empty(shape, dtype=torch.float32, device=device)
    places = torch.arange(spec.tokens, device=device)[:, None]
    places = places + torch.arange(spec.requests, device=device)
    for step, index in product(range(options.steps), range(options.passes)):
        draw = generator(device, options.seed, "draft", "base", step, index)
        logits = base[step, index].normal_(generator=draw)
        tied = (places + step + index) % _TIE_EVERY == 0
        for token in ties[index]:
            logits[..., token].masked_fill_(tied, TIED)
    return base


def _make_previous(spec: DraftSpec, options: DraftOptions) -> Tensor:
    """int64 [steps, requests]: tokens of the whole vocabulary."""
    shape = (options.steps, spec.requests)
    previous = torch.empty(shape, dtype=torch.int64)
    for step, row in enumerate(previous):
        draw = generator(previous.device, options.seed, "draft", "previous", step)
        row.random_(spec.vocab_size, generator=draw)
    return previous.to(options.device)


def _make_weights(
    spec: DraftSpec, options: DraftOptions, index: int, tied: list[int]
) -> tuple[Tensor, Tensor | BlockScaled]:
    device, dtype = torch.device(options.device), TORCH_DTYPES[spec.dtype]
    w1 = torch.empty(spec.vocab_size, spec.rank, dtype=dtype, device=device)
    w1.normal_(generator=generator(device, options.seed, "draft", "w1", index))
    w2 = torch.empty(spec.vocab_slice, spec.rank, dtype=dtype, device=device)
    draw = generator(device, options.seed, "draft", "w2", index)
    w2.normal_(0.0, spec.rank**-0.5, generator=draw)
    w2[tied] = 0.0
    if spec.weight_dtype is DType.FLOAT8_E4M3:
        return w1, quantise(w2)
    return w1, w2.to(TORCH_DTYPES[spec.weight_dtype])


def poison_draft(problem: DraftProblem) -> None:
    """Write -1, which is no token, to all that the passes of a replay must write."""
    for each in problem.passes:
        each.chosen.fill_(-1)


def shortfall(problem: DraftProblem, index: int) -> float:
    """How far the worst token of pass `index` is from the best one, as logits.

    Every token is judged by itself in float64, from the token that the arm itself
    chose before it: a near tie that fell the other way is not held against the tokens
    after it.

    Returns:
        The largest of best logit - chosen token's logit; 0 where all are the best;
        inf where a token is outside the slice, or is as good as the best but is not
        the lowest of those; where the token before the first is none; and where a
        logit is NaN.
    """
    each, spec = problem.passes[index], problem.spec
    if _any_outside(each.previous, spec.vocab_size):
        return inf
    w2, before, missed = matrix(each.w2, torch.float64), each.previous, []
    for base, chosen in zip(each.base, each.chosen, strict=True):
        if _any_outside(chosen, spec.vocab_slice):
            return inf
        logits = base.double() + each.w1[before].double() @ w2.T
        picked = logits.gather(-1, chosen[:, None]).squeeze(-1)
        missed.append(logits.amax(-1) - picked)
        if bool(((missed[-1] == 0) & (chosen != logits.argmax(-1))).any()):
            return inf
        before = chosen
    worst = float(torch.stack(missed).max())
    return inf if isnan(worst) else worst


def _any_outside(tokens: Tensor, end: int) -> bool:
    return bool(((tokens < 0) | (tokens >= end)).any())
