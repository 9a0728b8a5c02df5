import pytest
from transformers import CONFIG_MAPPING

from layerscope.layers.other_families import _DIFFERENCES, difference
from layerscope.layers.spec import Family

REMOTE = {"kimi_k2"}
"""Types whose code comes with the checkpoint."""


def test_every_type_is_one_that_checkpoints_have() -> None:
    """A name that is mistyped would never be met."""
    assert set(_DIFFERENCES) - REMOTE <= set(CONFIG_MAPPING)


def test_what_is_supported_does_not_differ() -> None:
    """A family that is added here leaves the table."""
    assert not set(_DIFFERENCES) & {family.value for family in Family}


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("qwen2", "biases on q, k and v"),
        ("deepseek_v3", "latent attention, shared experts, sigmoid routing in groups"),
        ("mixtral", "experts without QK-norm, and other names of tensors"),
        ("one_of_next_year", ""),
    ],
)
def test_a_type_is_told_by_what_differs(model_type: str, expected: str) -> None:
    """Nothing is made up for a type that is not known."""
    assert difference(model_type, {}) == expected


def test_a_language_model_within_another_is_told() -> None:
    """A type that is known is told by what its layers differ in."""
    outer = {"text_config": {"hidden_size": 8}}
    assert difference("llava", outer) == (
        "its language model is within a larger one, described in text_config"
    )
    assert difference("gemma3", outer) == difference("gemma3", {})
    assert difference("llava", {"text_config": None}) == ""
