import msgspec
import pytest

from layerscope.errors import InputError
from layerscope.layers.draft_spec import DraftSpec, draft_of
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec, ModelShape
from layerscope.regions import Region

QWEN3 = DraftSpec(model="qwen3-30b-a3b", vocab_size=151936)
FP8 = DType.FLOAT8_E4M3


def changed(**changes: object) -> DraftSpec:
    """The draft of Qwen3 with `changes` to its fields."""
    return msgspec.structs.replace(QWEN3, **changes)


@pytest.mark.parametrize(
    ("changes", "vocab_slice", "w2_bytes"),
    [
        ({}, 151936, 77_791_232),
        ({"tp": 4}, 37984, 19_447_808),  # a quarter
        ({"weight_dtype": DType.FLOAT32}, 151936, 155_582_464),
        ({"weight_dtype": FP8}, 151936, 38_905_112),  # 1187 x 2 scales
        ({"weight_dtype": FP8, "tp": 4}, 37984, 9_726_280),  # 296.75 x 2, rounded up
        ({"vocab_size": 7, "tp": 2, "rank": 3}, 4, 24),  # the last rank has 3 of 7
        ({"vocab_size": 129, "rank": 130, "weight_dtype": FP8}, 129, 16_786),
    ],
)
def test_w2_is_a_row_for_every_token_of_the_slice(
    changes: dict[str, object], vocab_slice: int, w2_bytes: int
) -> None:
    """Bytes of one rank's w2, with a scale for every block, ragged ones too."""
    spec = changed(**changes)
    assert (spec.vocab_slice, spec.w2_bytes) == (vocab_slice, w2_bytes)


@pytest.mark.parametrize(
    ("changes", "required_bytes"),
    [
        ({}, 77_791_232 + 3_038_720 + 2_560 + 40),
        ({"tp": 4}, 19_447_808 + 759_680 + 2_560 + 40),
        ({"requests": 3, "tokens": 2}, 77_791_232 + 3_646_464 + 3_072 + 48),
        ({"dtype": DType.FLOAT32}, 77_791_232 + 3_038_720 + 5_120 + 40),
    ],
)
def test_a_pass_must_move_w2_base_logits_rows_and_tokens(
    changes: dict[str, object], required_bytes: int
) -> None:
    """w2 once however many tokens; 4 bytes a logit, a row of w1 and 8 a token."""
    assert changed(**changes).required_bytes == required_bytes


def test_a_draft_is_one_region() -> None:
    """Its kernels are never counted among the layer's."""
    assert QWEN3.regions == (Region.DRAFT,)


def test_a_layers_draft_fills_its_step() -> None:
    """Every field that a layer and its draft share is the same in both."""
    layer = LayerSpec(
        model=preset("qwen3-30b-a3b"),
        weight_dtype=FP8,
        requests=3,
        draft_tokens=4,
        tp=2,
        shard_shaped=True,
    )
    assert draft_of(layer) == changed(
        weight_dtype=FP8, requests=3, tokens=4, tp=2, shard_shaped=True
    )


def test_a_layer_without_drafts_or_vocabulary_has_none(moe: ModelShape) -> None:
    """A decode step drafts nothing, and an unknown vocabulary has no tokens."""
    assert moe.vocab_size == 0
    assert draft_of(LayerSpec(model=moe)) is None
    decode = LayerSpec(model=preset("qwen3-30b-a3b"), draft_tokens=0)
    assert draft_of(decode) is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"vocab_size": 2},
        {"vocab_size": 3, "tp": 2},
        {"vocab_size": 151937, "tp": 8},
        {"requests": 1, "tokens": 1, "rank": 1},
        {"dtype": DType.FLOAT32, "weight_dtype": FP8},
    ],
)
def test_what_can_be_drafted_is_accepted(changes: dict[str, object]) -> None:
    """The least of everything, and slices that do not divide the vocabulary."""
    changed(**changes).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 0}, "--requests is 0, and must be at least 1"),
        ({"tokens": 0}, "--draft-tokens is 0, and must be at least 1"),
        ({"tp": 0}, "--tp is 0, and must be at least 1"),
        ({"rank": 0}, "the rank of the bias is 0, and must be at least 1"),
        (
            {"vocab_size": 1},
            "--tp 1 leaves a rank 1 of 1 tokens, and a draft needs 2",
        ),
        (
            {"vocab_size": 4, "tp": 4},
            "--tp 4 leaves a rank 1 of 4 tokens, and a draft needs 2",
        ),
        (
            {"dtype": FP8},
            "--dtype is for activations: float32 or bfloat16",
        ),
        (
            {"requests": -1, "tp": 0},
            (
                "--requests is -1, and must be at least 1; "
                "--tp is 0, and must be at least 1"
            ),
        ),
    ],
)
def test_what_cannot_be_drafted_is_refused_with_all_reasons(
    changes: dict[str, object], message: str
) -> None:
    """Each field that is out of range is named, in one line."""
    with pytest.raises(InputError) as caught:
        changed(**changes).check()
    assert str(caught.value) == message
