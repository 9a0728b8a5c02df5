import msgspec
import pytest
import torch
from torch._dynamo import config

from backends.torch_compile.tests.small import draft_context_of
from layerscope.layers.draft import (
    TIED,
    DraftOptions,
    DraftProblem,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.layers.spec import DType
from layerscope.plugin import DraftStep
from layerscope_torch_compile import BACKEND
from layerscope_torch_compile.draft import BLOCKS, argmax

SPEC = DraftSpec(model="small", vocab_size=1_000, rank=160, requests=2, tokens=3)
"""Neither the vocabulary nor the rank is a multiple of a block of weights."""


def problem_of(**changes: object) -> DraftProblem:
    """Three passes of a small draft, with base logits for two steps."""
    spec = msgspec.structs.replace(SPEC, **changes)
    return make_draft(spec, DraftOptions(passes=3, steps=2))


@pytest.mark.parametrize("size", [1, 2, BLOCKS - 1, BLOCKS, BLOCKS + 1, 5 * BLOCKS + 7])
def test_argmax_takes_the_first_of_equals(size: int) -> None:
    """In any block, the last one included, and never what lies behind the end."""
    for best in {0, size // 2, size - 1}:
        logits = torch.full((size,), -1.0)
        logits[best:] = 2.0
        assert argmax(logits).tolist() == [best]


@pytest.fixture(
    scope="module",
    params=[
        {"weight_dtype": DType.FLOAT8_E4M3},
        {"dtype": DType.FLOAT32, "weight_dtype": DType.FLOAT32, "requests": 1},
    ],
    ids=["fp8", "float32"],
)
def compiled(
    request: pytest.FixtureRequest, _compiler: None
) -> tuple[DraftProblem, DraftStep]:
    """A draft of two requests in fp8, and one of a single request in float32."""
    problem = problem_of(**request.param)
    assert BACKEND.build_draft is not None
    step = BACKEND.build_draft(draft_context_of(problem)).plan(problem.spec)
    assert step is not None
    return problem, step


def test_every_token_is_the_best_one(compiled: tuple[DraftProblem, DraftStep]) -> None:
    """No token falls short, on the inputs of every step; ties go to the lowest id."""
    problem, step = compiled
    tied = 0
    for _ in range(2):
        advance(problem.feed)
        poison_draft(problem)
        for index, each in enumerate(problem.passes):
            step.run(index)
            assert shortfall(problem, index) == 0
            tied += int(((each.base == TIED).sum(-1) == 2).sum())
    assert tied > 0


def test_nothing_is_compiled_anew(compiled: tuple[DraftProblem, DraftStep]) -> None:
    """One graph serves the first pass and those that start from another's tokens."""
    problem, step = compiled
    with config.patch(error_on_recompile=True):
        for index in range(len(problem.passes)):
            step.run(index)


def test_w2_is_read_for_every_token(compiled: tuple[DraftProblem, DraftStep]) -> None:
    """Nothing of it stays on chip between tokens, and no bytes are claimed."""
    _, step = compiled
    assert step.w2_reads == 3
    assert step.touched_bytes() is None


@pytest.mark.usefixtures("_compiler")
def test_other_drafts_are_declined() -> None:
    """It agrees to run the problem's own draft, and no other."""
    problem = problem_of(tokens=1)
    assert BACKEND.build_draft is not None
    built = BACKEND.build_draft(draft_context_of(problem))
    assert built.device_bytes == 0
    assert built.plan(problem.spec) is not None
    assert built.plan(SPEC) is None
