import pytest
from msgspec import structs

from backends.standard.tests.bench import DENSE, MOE, small
from layerscope.environment import DeviceFacts
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec
from layerscope.regions import Region
from layerscope_standard import limits
from layerscope_standard.attention import most_block_bytes


@pytest.mark.parametrize("ranks", [1, 4, 8])
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "llama-3.1-8b", "tiny-moe"])
def test_presets_fit(name: str, ranks: int) -> None:
    """Whole and in slices of up to eight ranks."""
    model = preset(name)
    spec = LayerSpec(model=model, tp=ranks, shard_shaped=ranks > 1)
    assert limits.shapes(spec) == []


def test_all_sizes_are_told_at_once() -> None:
    """Each reason reads on from the backend's name."""
    model = structs.replace(
        MOE,
        head_dim=96,
        hidden_size=8200,
        expert_size=24,
        experts=1024,
        experts_per_token=40,
        query_heads=64,
        kv_heads=1,
    )
    assert limits.shapes(small(model)) == [
        "takes heads of 64, 128, 256 elements, not 96",
        "takes a hidden size up to 8192, not 8200",
        "takes a hidden size that is a multiple of 16, not 8200",
        "takes a width that is a multiple of 16, not 24",
        "takes up to 512 experts, not 1024",
        "takes up to 32 experts a token, not 40",
    ]


def test_a_dense_width_counts_too() -> None:
    """That of the MLP on one rank."""
    spec = small(structs.replace(DENSE, mlp_size=264))
    assert limits.shapes(spec) == ["takes a width that is a multiple of 16, not 264"]


def test_a_device_with_little_shared_memory_is_told() -> None:
    """Three tiles of 64 keys and values, 48 rows of shares, and their queries."""
    spec = LayerSpec(model=preset("qwen3-30b-a3b"), tp=4, shard_shaped=True)
    hopper = DeviceFacts(type="cuda", name="H200", architecture="sm_90")
    geforce = DeviceFacts(type="cuda", name="RTX 5090", architecture="sm_120")
    needed = 3 * 64 * (320 + 272) + 48 * 144 + 16 * 48 + 48 * 320
    assert most_block_bytes(spec) == needed == 136_704
    assert limits.shared_memory(spec, hopper) == []
    assert limits.shared_memory(spec, geforce) == [
        "needs 133 KiB of shared memory a block, and RTX 5090 (sm_120) has 99"
    ]


def test_missing_bindings_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all of ``cuda`` is missing or its bindings only."""
    expected = ["needs cuda-bindings: pip install 'layerscope[cuda]'"]
    monkeypatch.setattr(limits, "find_spec", lambda _: None)
    assert limits.missing_packages() == expected
    found = {"cuda": object()}
    monkeypatch.setattr(limits, "find_spec", found.get)
    assert limits.missing_packages() == expected
    monkeypatch.setattr(limits, "find_spec", lambda _: object())
    assert limits.missing_packages() == []


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "llama-3.1-8b"])
@pytest.mark.parametrize("rows", [9, 64, 256])
def test_more_than_eight_rows_are_left_to_the_fallback(name: str, rows: int) -> None:
    """Every region, for there is a product in each."""
    spec = LayerSpec(model=preset(name), draft_tokens=rows - 1)
    why = f"runs at most 8 rows, not {rows}"
    assert limits.declines(spec) == dict.fromkeys(spec.regions, why)


def test_attention_alone_is_left_to_the_fallback() -> None:
    """Where rows are few, and heads that share a KV head are many."""
    model = structs.replace(MOE, query_heads=64, kv_heads=1)
    assert limits.declines(small(model, draft_tokens=1)) == {}
    assert limits.declines(small(model, draft_tokens=2)) == {
        Region.ATTENTION: (
            "takes up to 128 new rows times query heads of a KV head, not 192"
        )
    }
