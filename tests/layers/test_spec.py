import pytest

from layerscope.errors import InputError
from layerscope.layers.spec import DType, LayerSpec, ModelShape


def test_rows_are_requests_times_tokens(moe: ModelShape) -> None:
    """Every request adds its last accepted token and its drafts."""
    assert LayerSpec(model=moe, requests=3, draft_tokens=4).rows == 15


def test_pages_hold_context_and_new_rows(moe: ModelShape) -> None:
    """A request has just enough pages for its context and its new rows."""
    pages = [
        LayerSpec(
            model=moe, context=context, draft_tokens=5, page_size=16
        ).pages_per_request
        for context in (0, 10, 11, 26, 27)
    ]
    assert pages == [1, 1, 2, 2, 3]


def test_kv_heads_are_replicated_when_ranks_outnumber_them(moe: ModelShape) -> None:
    """Four ranks share two KV heads by holding one each; query heads are divided."""
    spec = LayerSpec(model=moe, tp=4, shard_shaped=True)
    spec.check()
    assert (spec.query_heads, spec.kv_heads, spec.expert_size) == (2, 1, 8)


def test_every_reason_is_in_one_line(moe: ModelShape) -> None:
    """A spec that is wrong in many ways is refused once, with all the reasons."""
    spec = LayerSpec(
        model=moe,
        layer=2,
        requests=0,
        draft_tokens=-1,
        context=-1,
        page_size=0,
        dtype=DType.FLOAT8_E4M3,
    )
    with pytest.raises(InputError) as caught:
        spec.check()
    assert str(caught.value) == (
        "layer 2 is out of range: small-moe has layers 0 to 1; "
        "--requests is 0, and must be at least 1; "
        "--draft-tokens is -1, and must be at least 0; "
        "--context is -1, and must be at least 0; "
        "--page-size is 0, and must be at least 1; "
        "--dtype is for activations: float32 or bfloat16"
    )


def test_ranks_must_divide_the_layer(moe: ModelShape, dense: ModelShape) -> None:
    """A tensor-parallel size that does not divide heads or widths is refused."""
    with pytest.raises(InputError) as caught:
        LayerSpec(model=moe, tp=3).check()
    assert str(caught.value) == (
        "--tp 3 does not divide the 8 query heads of small-moe; "
        "--tp 3 does not divide the 32 expert width of small-moe; "
        "--tp 3 and the 2 KV heads of small-moe do not divide each other"
    )
    with pytest.raises(InputError, match="does not divide the 96 MLP width"):
        LayerSpec(model=dense, tp=5).check()


def test_a_slice_of_one_rank_is_refused(moe: ModelShape) -> None:
    """Whoever asks for a slice has several ranks in mind."""
    with pytest.raises(InputError) as caught:
        LayerSpec(model=moe, shard_shaped=True).check()
    assert str(caught.value) == (
        "--shard-shaped is one rank's slice of several: give --tp too"
    )
