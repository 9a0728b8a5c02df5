from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope.testing import check_backend


def test_the_reference_keeps_the_contract_under_graphs() -> None:
    """Small layers and drafts of every family, captured and replayed."""
    models = ("tiny-moe", "llama-3.1-8b")
    specs = [
        LayerSpec(model=preset(name), dtype=dtype, weight_dtype=weights, context=33)
        for name in models
        for dtype, weights in (
            (DType.FLOAT32, DType.FLOAT32),
            (DType.BFLOAT16, DType.FLOAT8_E4M3),
        )
    ]
    found = check_backend("reference", device="cuda", specs=specs)
    assert found.left_out == []
    assert len(found.checked) == 2 * len(specs)
