import pytest

from layerscope.analyze.occupancy import PROCESSORS, block_needs, lacking

H200 = PROCESSORS["sm_90"]


def test_what_a_block_holds() -> None:
    """Whole warps, registers in units of 256 a warp, and 1 KiB beside its own memory.

    100 threads are 4 warps; 33 registers of 32 threads are 1,056, which takes 1,280.
    """
    needs = block_needs(100, 33, 2_048)
    assert needs.named() == {
        "registers": 5_120,
        "shared memory": 3_072,
        "threads": 128,
        "blocks": 1,
    }


@pytest.mark.parametrize(
    ("before", "blocks", "after", "expected"),
    [
        # 256 threads of 64 registers hold a quarter: three more fit beside one
        ((256, 64, 0), 132, (256, 64, 0), ()),
        # 1,024 threads of 64 registers hold all of the 65,536
        ((1024, 64, 0), 132, (128, 32, 0), ("registers",)),
        # 227 KiB and the 1 KiB of the block are all there is
        ((128, 32, 227 * 1024), 132, (128, 32, 0), ("shared memory",)),
        # two blocks of 1,024 threads are all 2,048
        ((1024, 32, 0), 264, (32, 16, 0), ("registers", "threads")),
        # 32 blocks of 64 threads are as many as there may be, of both
        ((64, 16, 0), 32 * 132, (64, 16, 0), ("threads", "blocks")),
    ],
)
def test_what_the_kernel_before_leaves_too_little_of(
    before: tuple[int, int, int],
    blocks: int,
    after: tuple[int, int, int],
    expected: tuple[str, ...],
) -> None:
    """On the 132 processors of an H200, each resource by itself and some together."""
    found = lacking(block_needs(*before), blocks, block_needs(*after), H200, 132)
    assert found == expected


@pytest.mark.parametrize("blocks", [1, 131, 133, 132 + 131])
def test_a_processor_that_is_left_free_has_room(blocks: int) -> None:
    """Fewer blocks than processors, or a last wave of fewer, leave one empty."""
    full = block_needs(1024, 64, 0)
    assert lacking(full, blocks, full, H200, 132) == ()


def test_a_whole_last_wave_leaves_none() -> None:
    """Two full waves are as one: the second holds what the first held."""
    full = block_needs(1024, 64, 0)
    assert lacking(full, 2 * 132, full, H200, 132) == ("registers",)
