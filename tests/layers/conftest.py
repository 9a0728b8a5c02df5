"""Small models that the tests of the layer share."""

import pytest

from layerscope.layers.spec import Family, ModelShape, RopeScaling


@pytest.fixture
def moe() -> ModelShape:
    """Qwen3-MoE with sizes that all differ where they may."""
    return ModelShape(
        name="small-moe",
        family=Family.QWEN3_MOE,
        layers=2,
        hidden_size=48,
        query_heads=8,
        kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        experts=8,
        experts_per_token=3,
        expert_size=32,
    )


@pytest.fixture
def dense() -> ModelShape:
    """Llama whose frequencies lie below, on and above the ramp of its scaling."""
    return ModelShape(
        name="small-dense",
        family=Family.LLAMA,
        layers=2,
        hidden_size=48,
        query_heads=6,
        kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_theta=5e5,
        rope_scaling=RopeScaling(
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        mlp_size=96,
    )


@pytest.fixture(params=["moe", "dense"])
def model(request: pytest.FixtureRequest) -> ModelShape:
    """Each of the small models."""
    shape: ModelShape = request.getfixturevalue(request.param)
    return shape
