"""The draft in one launch on a GPU, on odd shapes and on those of real models."""

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

import torch
from msgspec import structs

from backends.nvidia_mega.tests import checks_draft as checks
from backends.standard.tests.bench import Bench
from backends.standard.tests.delays import REPLAYS, count_wrong, draft_chain
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.plugin import Waits
from layerscope_nvidia_mega.draft import Placement, Room
from layerscope_standard.draft import DraftStep as StandardStep

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
SPEC = DraftSpec(model="small", vocab_size=37_984)


@pytest.fixture
def room(bench: Bench) -> Room:
    """All that the GPU has."""
    return Room.on(bench.device)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("requests", [1, 3, 8])
@pytest.mark.parametrize("vocabulary", [300, 3_001, 18_992, 37_984, 75_967, 151_936])
def test_the_best_tokens_are_chosen(
    bench: Bench, room: Room, weights: DType, requests: int, vocabulary: int
) -> None:
    """Those of one launch a token, whether w2 stays on the chip or not."""
    spec = structs.replace(
        SPEC, vocab_size=vocabulary, requests=requests, weight_dtype=weights
    )
    checks.check_tokens(bench, spec, room)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("vocabulary", [3_001, 37_984, 151_936])
def test_sums_are_rounded_as_with_a_launch_a_token(
    bench: Bench, room: Room, weights: DType, vocabulary: int
) -> None:
    """The same tokens where it depends on the last bits."""
    spec = structs.replace(
        SPEC, vocab_size=vocabulary, requests=8, weight_dtype=weights
    )
    checks.check_coarse_logits(bench, spec, room)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("vocabulary", [37_984, 151_936])
def test_ties_go_to_the_lowest_token(
    bench: Bench, room: Room, weights: DType, vocabulary: int
) -> None:
    """Within a thread, a tile, a warp and a block, and over blocks."""
    spec = structs.replace(
        SPEC, vocab_size=vocabulary, requests=8, weight_dtype=weights
    )
    placement = Placement(spec, room)
    round_of = 16 * placement.blocks
    apart = (1, 8, 16, round_of, round_of * placement.warps, vocabulary - 1)
    checks.check_ties(bench, spec, room, apart)


@pytest.mark.parametrize("vocabulary", [3_001, 37_984])
def test_a_block_that_never_comes_ends_the_launch(
    bench: Bench, room: Room, vocabulary: int
) -> None:
    """Within the deadline; later launches end at once until the host clears it."""
    spec = structs.replace(SPEC, vocab_size=vocabulary, requests=3)
    checks.check_abort(bench, spec, room, deadline_s=0.05)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("vocabulary", [37_984, 151_936])
def test_replays_of_a_graph_are_right(
    bench: Bench, room: Room, weights: DType, vocabulary: int
) -> None:
    """Thousands, without a pause and with other inputs each; no token is another."""
    spec = structs.replace(SPEC, vocab_size=vocabulary, weight_dtype=weights)
    problem, waits = checks.problem_on(bench, spec), Waits.on(bench.device)
    workshop = bench.workshop()
    step = checks.step_of(problem, workshop, waits, room)
    standard = StandardStep(problem, bench.workshop())
    right = draft_chain(problem, bench.workshop(), standard)
    assert count_wrong(right, draft_chain(problem, workshop, step), REPLAYS) == 0
    torch.cuda.synchronize()
    assert waits.abort.tolist() == [0]
