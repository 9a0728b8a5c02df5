from hypothesis import given
from hypothesis import strategies as st

from layerscope.environment import DeviceFacts
from layerscope.selftest.plan import NAMES, planted_arms
from layerscope.selftest.sizes import Sizes, sizes_of
from layerscope.study import ANCHOR_LENGTHS


def gpu(processors: int, l2_bytes: int) -> DeviceFacts:
    """A GPU with so many processors and such a cache."""
    return DeviceFacts(
        type="cuda", name="Paper GPU", processors=processors, l2_bytes=l2_bytes
    )


def test_sizes_of_a_chain_of_eight_kernels() -> None:
    """5 caches of 60 MB in 8 passes of 8 chunks of 1.08 MB a sweep: 5 sweeps each."""
    arms, reads = planted_arms("less")
    sizes = sizes_of(arms, reads, gpu(132, 60_000_000), 24)
    assert sizes == Sizes(blocks=132, sweeps=5, chunks=8, extra=6, slots=24)
    assert sizes.threads == 67_584
    assert sizes.chunk_bytes == 5_406_720
    assert sizes.pass_bytes == 14 * 5_406_720
    assert sizes.weight_bytes == 24 * 14 * 5_406_720


def test_large_passes_share_weights() -> None:
    """As many have their own as fit into 4 GB."""
    arms, reads = planted_arms("bandwidth")
    sizes = sizes_of(arms, reads, gpu(132, 60_000_000), 24)
    assert (sizes.chunks, sizes.slots) == (2, 6)
    assert sizes.weight_bytes <= 4_000_000_000


@given(
    st.sampled_from(NAMES),
    st.integers(1, 200),
    st.integers(0, 200_000_000),
    st.integers(1, 24),
)
def test_no_pass_finds_its_weights_in_the_cache(
    name: str, processors: int, l2_bytes: int, passes: int
) -> None:
    """Before a pass's weights are read again, 5 times the cache was read."""
    arms, reads = planted_arms(name)
    sizes = sizes_of(arms, reads, gpu(processors, l2_bytes), passes)
    between = min(sizes.slots, *ANCHOR_LENGTHS) * sizes.chunks * sizes.chunk_bytes
    assert between >= 5 * l2_bytes or passes < min(ANCHOR_LENGTHS)
    assert 1 <= sizes.slots <= passes
