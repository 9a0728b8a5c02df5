"""Drafts small enough for pencil and paper.

Six tokens and a bias of rank two. What the token before adds to the logits of all six::

    before    0   1   2   3   4   5   best
         0    0   1   0   1  -1   0      1, tied with 3
         1    0   0   1   1   0   2      5
         2    0   1   1   2  -1   2      3, tied with 5
         3    0  -1   0  -1   1   0      4
         4    0   0  -1  -1   0  -2      0, tied with 1 and 4
         5    0   2   1   3  -2   2      3

So with base logits of zero 0 is followed by 1, 5, 3, 4, 0 and so on.
"""

import torch
from torch import Tensor

from layerscope.layers.draft import DraftPass, DraftProblem
from layerscope.layers.draft_reference import ReferenceDraftStep, build_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import Pool, make_feed
from layerscope.layers.spec import DType
from layerscope.layers.weights import TORCH_DTYPES, quantise
from layerscope.plugin import DraftContext, Waits

W1 = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (2.0, 1.0))
W2 = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (-1.0, 0.0), (0.0, 2.0))

PAPER = DraftSpec(
    model="paper",
    vocab_size=6,
    dtype=DType.FLOAT32,
    weight_dtype=DType.FLOAT32,
    rank=2,
)


def paper_draft(spec: DraftSpec, base: Tensor, previous: Tensor) -> DraftProblem:
    """A draft with `W1` and the first rows of `W2` in every pass, at step 0.

    Args:
        spec: `PAPER`, or that with other types, tokens, requests or sharding.
        base: float32 [steps, passes, tokens, requests, vocab_slice].
        previous: int64 [steps, requests].
    """
    weight_dtype = TORCH_DTYPES[spec.weight_dtype]
    w2 = torch.tensor(W2[: spec.vocab_slice])
    scaled = spec.weight_dtype is DType.FLOAT8_E4M3
    loaded_base, loaded_previous = base[0].clone(), previous[0].clone()
    passes: list[DraftPass] = []
    for logits in loaded_base:
        passes.append(
            DraftPass(
                w1=torch.tensor(W1, dtype=TORCH_DTYPES[spec.dtype]),
                w2=quantise(w2) if scaled else w2.to(weight_dtype),
                base=logits,
                previous=passes[-1].chosen[-1] if passes else loaded_previous,
                chosen=torch.full((spec.tokens, spec.requests), -1),
            )
        )
    pools = (Pool(base, loaded_base), Pool(previous, loaded_previous))
    device = torch.device("cpu")
    feed = make_feed(len(base), pools, device)
    return DraftProblem(spec=spec, device=device, passes=tuple(passes), feed=feed)


def tied_rows(size: int) -> tuple[Tensor, list[int]]:
    """Rows of logits with ties in many places, and the lowest token of each tie.

    Returns:
        float32 [rows, size], and as many tokens.
    """
    middle, last = size // 2, size - 1
    places = (
        (0, last),
        (3, 4),
        (7, 8, 9),
        (15, 16, 31, 32),
        (127, 128),
        (1023, 1024),
        (100, middle, last),
        (middle, middle + 1),
        (last - 7, last),
        (last - 1, last),
        range(size),
    )
    rows = torch.rand(len(places), size, generator=torch.Generator().manual_seed(0))
    for row, tied in zip(rows, places, strict=True):
        row[list(tied)] = 2.0
    return rows, [tied[0] for tied in places]


def unbiased_draft(base: Tensor) -> DraftProblem:
    """One pass whose bias is zero, so that every position is decided by `base` alone.

    Args:
        base: float32 [tokens, requests, vocab_size], on the device of the draft.
    """
    tokens, requests, size = base.shape
    device = base.device
    weights = torch.zeros(size, 1, device=device)
    spec = DraftSpec(
        model="unbiased", vocab_size=size, rank=1, tokens=tokens, requests=requests
    )
    one = DraftPass(
        w1=weights,
        w2=weights,
        base=base,
        previous=torch.zeros(requests, dtype=torch.int64, device=device),
        chosen=torch.full((tokens, requests), -1, device=device),
    )
    feed = make_feed(1, (), device)
    return DraftProblem(spec=spec, device=device, passes=(one,), feed=feed)


def draft_context(problem: DraftProblem) -> DraftContext:
    """What a backend builds the draft of `problem` from."""
    abort = torch.zeros(1, dtype=torch.int32, device=problem.device)
    return DraftContext(problem=problem, waits=Waits(abort=abort))


def reference_draft(problem: DraftProblem) -> ReferenceDraftStep:
    """The reference's step, built for `problem`."""
    return build_draft(draft_context(problem)).step


def draft_all(problem: DraftProblem) -> list[list[list[int]]]:
    """The reference's tokens of every pass: [passes][tokens][requests]."""
    step = reference_draft(problem)
    for index in range(len(problem.passes)):
        step.run(index)
    return [each.chosen.tolist() for each in problem.passes]
