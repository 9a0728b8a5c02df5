import pytest

from layerscope.graphs.skeleton import (
    Order,
    Stage,
    Variant,
    blocks_of,
    is_shallow,
    offsets_of,
    order_of,
    stages_of,
    standard_chain,
)
from layerscope.layers.families import required_bytes
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope.regions import Region

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
QWEN, LLAMA = "qwen3-30b-a3b", "llama-3.1-8b"
EXPERTS = 41
READ, ROUTED = (
    Stage(name="gemm", region="moe", bytes=4096, needs_routing=needs)
    for needs in (False, True)
)


def spec(
    model: str, weights: DType = BF16, tp: int = 1, requests: int = 1
) -> LayerSpec:
    """Six rows a request at 8,192 tokens of context, or one rank's slice of it."""
    return LayerSpec(
        model=preset(model),
        weight_dtype=weights,
        tp=tp,
        shard_shaped=tp > 1,
        requests=requests,
    )


def test_the_standard_chain_of_experts_has_14_kernels() -> None:
    """Each kernel reads its weights or the cache; the first expert GEMM is routed."""
    chain = standard_chain(spec(QWEN), EXPERTS)
    assert [(stage.region, stage.name, stage.bytes) for stage in chain] == [
        ("attention", "norm", 2 * 2048),
        ("attention", "qkv", 2 * 2048 * (32 + 4 + 4) * 128),
        ("attention", "qk norm + rope", 2 * (128 + 128)),
        ("attention", "attention", 8192 * 2 * 4 * 128 * 2),
        ("attention", "combine", 0),
        ("o_proj_all_reduce", "o proj", 2 * 2048 * 32 * 128),
        ("o_proj_all_reduce", "norm", 2 * 2048),
        ("moe", "router", 2 * 128 * 2048),
        ("moe", "top-k", 0),
        ("moe", "align", 0),
        ("moe", "gate up", 41 * 2 * (2 * 768) * 2048),
        ("moe", "activation", 0),
        ("moe", "down", 41 * 2 * 2048 * 768),
        ("moe", "sum", 0),
    ]
    assert [stage.name for stage in chain if stage.needs_routing] == ["gate up"]


def test_the_standard_chain_of_a_dense_layer_has_10_kernels() -> None:
    """No head norms, no router, and nothing that waits for a routing."""
    chain = standard_chain(spec(LLAMA), None)
    assert [(stage.region, stage.name, stage.bytes) for stage in chain] == [
        ("attention", "norm", 2 * 4096),
        ("attention", "qkv", 2 * 4096 * (32 + 8 + 8) * 128),
        ("attention", "rope", 0),
        ("attention", "attention", 8192 * 2 * 8 * 128 * 2),
        ("attention", "combine", 0),
        ("o_proj_all_reduce", "o proj", 2 * 4096 * 32 * 128),
        ("o_proj_all_reduce", "norm", 2 * 4096),
        ("mlp", "gate up", 2 * (2 * 14336) * 4096),
        ("mlp", "activation", 0),
        ("mlp", "down", 2 * 4096 * 14336),
    ]
    assert not any(stage.needs_routing for stage in chain)


@pytest.mark.parametrize(
    ("weights", "tp", "megabytes"),
    [
        *((BF16, 1, 442.0), (BF16, 2, 221.3), (BF16, 4, 110.9), (BF16, 8, 58.3)),
        *((FP8, 1, 229.7), (FP8, 2, 115.1), (FP8, 4, 57.8), (FP8, 8, 31.5)),
    ],
)
def test_bytes_of_a_pass_by_weights_and_ranks(
    weights: DType, tp: int, megabytes: float
) -> None:
    """Block scales are read too, and KV heads are replicated beyond four ranks."""
    chain = standard_chain(spec(QWEN, weights, tp), EXPERTS)
    assert round(sum(stage.bytes for stage in chain) / 1e6, 1) == megabytes


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize(("model", "experts"), [(QWEN, EXPERTS), (LLAMA, None)])
def test_bytes_close_with_what_regions_must_move(
    model: str, experts: int | None, weights: DType, tp: int, requests: int
) -> None:
    """A region's required bytes are its kernels' and its activations, no byte more."""
    of = spec(model, weights, tp, requests)
    chain = standard_chain(of, experts)
    hidden = 2 * of.rows * of.model.hidden_size
    attn_out = 2 * of.rows * of.query_heads * of.model.head_dim
    new_kv = 2 * of.rows * 2 * of.kv_heads * of.model.head_dim
    activations = {
        Region.ATTENTION: hidden + attn_out + new_kv,
        Region.O_PROJ_ALL_REDUCE: attn_out + 3 * hidden,
        of.regions[-1]: 3 * hidden,
    }
    assert required_bytes(of, experts) == {
        region: sum(stage.bytes for stage in chain if stage.region == region) + added
        for region, added in activations.items()
    }


def test_experts_must_fit_the_family() -> None:
    """A dense layer has none, and a mixture cannot do without their number."""
    with pytest.raises(ValueError, match=r"llama-3\.1-8b"):
        standard_chain(spec(LLAMA), EXPERTS)
    with pytest.raises(ValueError, match="qwen3-30b-a3b"):
        standard_chain(spec(QWEN), None)


@pytest.mark.parametrize(
    ("variant", "stage", "expected"),
    [
        (Variant.NO_PDL, READ, Order(0)),
        (Variant.NO_PDL, ROUTED, Order(0)),
        (Variant.ONE_READ, READ, Order(0)),
        (Variant.STOCK, READ, Order.WAIT | Order.TRIGGER_LAST),
        (Variant.STOCK, ROUTED, Order.WAIT | Order.TRIGGER_LAST),
        (Variant.LEGAL, READ, Order.TRIGGER_FIRST | Order.READ_FIRST | Order.WAIT),
        (Variant.LEGAL, ROUTED, Order.WAIT | Order.TRIGGER_WAITED),
        (Variant.ALL_EARLY, READ, Order.TRIGGER_FIRST | Order.READ_FIRST | Order.WAIT),
        (Variant.ALL_EARLY, ROUTED, order_of(Variant.LEGAL, READ)),
    ],
)
def test_what_a_kernel_does_when(
    variant: Variant, stage: Stage, expected: Order
) -> None:
    """Only what needs the routing differs between what is legal and all early."""
    assert order_of(variant, stage) == expected


def test_one_kernel_reads_what_all_of_a_chain_do() -> None:
    """Every other variant has the chain's own kernels."""
    chain = (READ, ROUTED, Stage(name="sum", region="moe"))
    (one,) = stages_of(Variant.ONE_READ, chain)
    assert one == Stage(name="read", region="other", bytes=8192)
    assert {stages_of(each, chain) for each in Variant} == {chain, (one,)}


@pytest.mark.parametrize(
    ("size", "handed", "most", "expected"),
    [
        (0, 24_576, 2, 132),  # a block a multiprocessor
        (1 << 20, 24_576, 2, 132),
        (5_000_000, 24_576, 2, 153),  # eight loads of 16 bytes a thread
        (100_000_000, 24_576, 2, 264),
        (100_000_000, 24_576, 4, 528),
        (100_000_000, 24_576, None, 3052),
        (0, 1_000_000, 2, 245),  # a vector of activations a thread
    ],
)
def test_blocks_follow_from_bytes_and_the_device(
    size: int, handed: int, most: int | None, expected: int
) -> None:
    """At least one a multiprocessor of 132, at most as many as the grid allows."""
    stage = Stage(name="read", region="other", bytes=size)
    assert blocks_of(stage, handed, 132, most) == expected


def test_what_one_load_a_thread_reads_is_shallow() -> None:
    """132 blocks of 256 threads read 16 bytes each; one byte more is deep."""
    stages = [Stage(name="read", region="other", bytes=540_672 + n) for n in (0, 1)]
    assert [is_shallow(stage, 132) for stage in stages] == [True, False]


def test_stages_begin_at_whole_lines() -> None:
    """Of 256 bytes; a stage that reads nothing takes up none."""
    chain = [Stage(name="read", region="other", bytes=n) for n in (1, 0, 256, 257)]
    assert offsets_of(chain) == ((0, 256, 256, 512), 1024)
    assert offsets_of(()) == ((), 0)
