import pytest

from layerscope.errors import InputError
from layerscope.layers.presets import PRESETS, preset
from layerscope.layers.spec import LayerSpec


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_run(name: str) -> None:
    """The default step of every preset passes the checks of its spec."""
    LayerSpec(model=preset(name)).check()
    assert preset(name).name == name


def test_a_preset_has_the_size_of_its_layer() -> None:
    """The presets have the parameters a layer that their models are known for."""
    qwen, llama = preset("qwen3-30b-a3b"), preset("llama-3.1-8b")
    attention = 2048 * (32 + 2 * 4 + 32) * 128
    assert attention + 128 * (3 * 2048 * qwen.expert_size + 2048) == 623_116_288
    mlp = 3 * llama.hidden_size * llama.mlp_size
    assert llama.hidden_size * (32 + 2 * 8 + 32) * 128 + mlp == 218_103_808


def test_presets_have_their_vocabulary() -> None:
    """The rows of the head, for what comes after the layers."""
    assert {name: model.vocab_size for name, model in PRESETS.items()} == {
        "qwen3-30b-a3b": 151_936,
        "llama-3.1-8b": 128_256,
        "tiny-moe": 4096,
    }


def test_an_unknown_name_lists_the_presets_and_the_closest() -> None:
    """A misspelt preset is refused with all names and the one that was meant."""
    with pytest.raises(InputError) as caught:
        preset("qwen3-30b-a3")
    assert str(caught.value) == (
        "no preset is called 'qwen3-30b-a3'; did you mean qwen3-30b-a3b? "
        "presets: qwen3-30b-a3b, llama-3.1-8b, tiny-moe"
    )


def test_a_name_that_is_close_to_none_gets_no_suggestion() -> None:
    """Nothing is suggested where nothing is close."""
    with pytest.raises(InputError) as caught:
        preset("gpt")
    assert str(caught.value) == (
        "no preset is called 'gpt'; presets: qwen3-30b-a3b, llama-3.1-8b, tiny-moe"
    )
