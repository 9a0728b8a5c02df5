"""The draft in one launch, emulated on the CPU with four blocks that run together."""

import pytest
from msgspec import structs

from backends.nvidia_mega.tests import checks_draft as checks
from backends.nvidia_mega.tests.checks_draft import problem_on
from backends.standard.tests.bench import Bench
from backends.standard.tests.delays import delayed
from backends.standard.tests.emulation import PROCESSORS
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.plugin import Waits
from layerscope_nvidia_mega.draft import BuiltDraft, Placement, Room, fits

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
SPEC = DraftSpec(model="small", vocab_size=1_990, rank=128, tokens=3)
AMPLE = Room(PROCESSORS, 227 << 10)
SCARCE = Room(PROCESSORS, 20_000)
H200 = Room(132, 227 << 10)


def of_qwen(ranks: int, weights: DType) -> Placement:
    """On one of so many H200."""
    spec = DraftSpec(
        model="qwen",
        vocab_size=151_936,
        tp=ranks,
        shard_shaped=True,
        weight_dtype=weights,
    )
    return Placement(spec, H200)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("requests", [1, 3, 8])
@pytest.mark.parametrize(
    ("sizes", "room"),
    [
        ((990, 256), AMPLE),
        ((1_990, 128), AMPLE),
        ((1_990, 192), SCARCE),
        ((1_990, 64), SCARCE),
        ((35, 64), AMPLE),
    ],
    ids=["in-registers", "kept", "in-turns", "short-rows", "three-blocks"],
)
def test_the_best_tokens_are_chosen(
    bench: Bench, weights: DType, requests: int, sizes: tuple[int, int], room: Room
) -> None:
    """Those of one launch a token, whether w2 stays on the chip or not."""
    vocabulary, rank = sizes
    spec = structs.replace(
        SPEC,
        vocab_size=vocabulary,
        rank=rank,
        requests=requests,
        weight_dtype=weights,
    )
    placement = checks.check_tokens(bench, spec, room).placement
    assert (placement.passing > 0) == (room == SCARCE)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("room", [AMPLE, SCARCE], ids=["kept", "in-turns"])
def test_sums_are_rounded_as_with_a_launch_a_token(
    bench: Bench, weights: DType, room: Room
) -> None:
    """The same tokens where it depends on the last bits."""
    spec = structs.replace(SPEC, requests=3, weight_dtype=weights)
    checks.check_coarse_logits(bench, spec, room)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("room", [AMPLE, SCARCE], ids=["kept", "in-turns"])
def test_ties_go_to_the_lowest_token(bench: Bench, weights: DType, room: Room) -> None:
    """Within a thread, a tile, a warp and a block, and over blocks."""
    spec = structs.replace(SPEC, requests=8, weight_dtype=weights)
    warps = Placement(spec, room).warps
    apart = (1, 8, 16, 16 * PROCESSORS, 16 * PROCESSORS * warps, 1_000, 1_989)
    checks.check_ties(bench, spec, room, apart)


@pytest.mark.parametrize("weights", [BF16, FP8])
def test_delays_change_nothing(bench: Bench, weights: DType) -> None:
    """Whichever warps and blocks are late."""
    late = Bench(bench.device, lambda: delayed(bench.workshop()))
    spec = structs.replace(SPEC, requests=3, weight_dtype=weights)
    checks.check_tokens(late, spec, SCARCE)


@pytest.mark.parametrize("requests", [1, 8])
def test_a_block_that_never_comes_ends_the_launch(bench: Bench, requests: int) -> None:
    """Within the deadline; later launches end at once until the host clears it."""
    spec = structs.replace(SPEC, vocab_size=300, requests=requests)
    checks.check_abort(bench, spec, AMPLE, deadline_s=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": DType.FLOAT32},
        {"requests": 9},
        {"rank": 96},
        {"tokens": 17},
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
    waits = Waits.on(bench.device)
    built = BuiltDraft(problem_on(bench, spec), bench.workshop(), waits, AMPLE)
    assert built.plan(spec) is None
    assert built.device_bytes == 0


def test_a_vocabulary_has_a_limit() -> None:
    """A slot has so many bits for a token."""
    assert fits(structs.replace(SPEC, vocab_size=1 << 20))
    assert not fits(structs.replace(SPEC, vocab_size=(1 << 20) + 1))


@pytest.mark.parametrize(
    ("ranks", "weights", "warps", "kept", "passing"),
    [
        (8, BF16, 9, 0, 0),
        (4, BF16, 12, 6, 0),
        (2, BF16, 12, 24, 0),
        (1, BF16, 12, 27, 5_932),
        (2, FP8, 12, 24, 0),
        (1, FP8, 12, 55, 1_304),
    ],
)
def test_where_the_tiles_of_a_real_draft_are(
    ranks: int, weights: DType, warps: int, kept: int, passing: int
) -> None:
    """Of 72 tiles of a block on one rank, 12 are in registers and 27 or 55 kept."""
    placement = of_qwen(ranks, weights)
    assert (placement.blocks, placement.tiles) == (132, -(-151_936 // ranks // 16))
    assert (placement.warps, placement.kept) == (warps, kept)
    assert placement.passing == passing
    assert placement.shared_bytes <= H200.shared_bytes


def test_fp8_is_widened_where_there_is_room() -> None:
    """Which is where all tiles stay."""
    assert not of_qwen(4, BF16).is_wide
    assert of_qwen(2, FP8).is_wide
    assert not of_qwen(1, FP8).is_wide


def test_bytes_touched(bench: Bench) -> None:
    """Tiles that do not stay count at every token, and rows fetched ahead once."""
    waits = Waits.on(bench.device)
    problem = problem_on(bench, SPEC)
    ample = checks.step_of(problem, bench.workshop(), waits, AMPLE)
    assert ample.w2_reads == 1
    ahead = 2 * 3 * 256  # tokens with a next one, other blocks, bytes of a row
    assert ample.touched_bytes() == SPEC.required_bytes + ahead
    scarce = checks.step_of(problem, bench.workshop(), waits, SCARCE)
    assert scarce.w2_reads == 3
    # Four tiles of a block are kept, and all others are read again.
    assert scarce.placement.passing == 125 - 4 * 4
    again = 2 * (125 - 4 * 4) * 16 * 256
    assert scarce.touched_bytes() == SPEC.required_bytes + ahead + again
