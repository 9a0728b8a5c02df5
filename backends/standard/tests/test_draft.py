import pytest
import torch
from msgspec import structs

from backends.standard.tests.bench import Bench
from layerscope.layers.draft import DraftOptions, make_draft, poison_draft, shortfall
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.layers.spec import DType
from layerscope_standard.draft import BuiltDraft, DraftStep, fits

SPEC = DraftSpec(model="small", vocab_size=1_000, rank=128, tokens=3)


def options(bench: Bench) -> DraftOptions:
    """Two passes with inputs for two steps."""
    return DraftOptions(passes=2, steps=2, device=str(bench.device))


def step_of(built: BuiltDraft, spec: DraftSpec) -> DraftStep:
    step = built.plan(spec)
    assert step is not None
    return step


@pytest.mark.parametrize("weights", [DType.BFLOAT16, DType.FLOAT8_E4M3])
@pytest.mark.parametrize("requests", [1, 3, 8])
def test_the_best_tokens_are_chosen(
    bench: Bench, weights: DType, requests: int
) -> None:
    """Chained from token to token and pass to pass, ties to the lowest id."""
    spec = structs.replace(SPEC, requests=requests, weight_dtype=weights)
    problem = make_draft(spec, options(bench))
    step = step_of(BuiltDraft(problem, bench.workshop()), spec)
    for _ in range(2):
        advance(problem.feed)
        poison_draft(problem)
        for index in range(2):
            step.run(index)
            assert shortfall(problem, index) <= 1e-5


def test_zeros_of_either_sign_tie(bench: Bench) -> None:
    """As logits they are equal, though their bits are not."""
    spec = structs.replace(SPEC, requests=1, tokens=1)
    problem = make_draft(spec, options(bench))
    each = problem.passes[0]
    assert isinstance(each.w2, torch.Tensor)
    each.w2.zero_()
    each.base.fill_(-1.0)
    each.base[..., 500] = -0.0
    each.base[..., 700] = 0.0
    step_of(BuiltDraft(problem, bench.workshop()), spec).run(0)
    assert each.chosen.tolist() == [[500]]


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": DType.FLOAT32},
        {"requests": 9},
        {"rank": 96},
        {"rank": 320},
    ],
    ids=str,
)
def test_what_the_kernel_does_not_take_is_declined(
    bench: Bench, change: dict[str, object]
) -> None:
    """Nothing is built for it."""
    spec = structs.replace(SPEC, **change)
    assert fits(SPEC)
    assert not fits(spec)
    built = BuiltDraft(make_draft(spec, options(bench)), bench.workshop())
    assert built.plan(spec) is None
    assert built.device_bytes == 0


def test_w2_is_read_at_every_token(bench: Bench) -> None:
    """And all else once."""
    step = step_of(BuiltDraft(make_draft(SPEC, options(bench)), bench.workshop()), SPEC)
    assert step.w2_reads == 3
    w2 = 1_000 * 128 * 2
    assert step.touched_bytes() == 3 * (w2 + 1_000 * 4 + 128 * 2 + 8)
