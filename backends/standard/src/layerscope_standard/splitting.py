"""Into how many blocks a kernel's work is cut, so that every processor has some."""

from typing import Final

TILE_OUTPUTS: Final = 16
"""Outputs of a tile of a product."""

TILE_TOKENS: Final = 64
"""Tokens of a tile of attention."""

PRODUCT_WARPS: Final = 8
DOWN_WARPS: Final = 16

_MOST_PRODUCT_SPLITS: Final = 16
_SPLIT_COST: Final = 1.5
"""What another part costs the kernel that adds the parts, in units of k of a product. A
guess: a unit is 1 KB, which a processor of an H200 reads in 28 ns."""

_MOST_ATTENTION_SPLITS: Final = 512

_STREAM_DEPTHS: Final = (4, 3, 2)


def units_of(inputs: int, unit: int) -> int:
    """Units of k that `inputs` elements make; the last may be ragged."""
    return -(-inputs // unit)


def product_splits(tiles: int, units: int, processors: int) -> int:
    """Into how many parts k of a product is cut.

    As many as leave the busiest processor the least work, each extra part costing what
    its reader needs for it; every warp of a block keeps at least one unit.

    Args:
        tiles: of outputs.
        units: of k.
        processors: of the device.
    """
    most = max(1, min(_MOST_PRODUCT_SPLITS, units // PRODUCT_WARPS))

    def cost(splits: int) -> float:
        rounds = -(-tiles * splits // processors)
        return rounds * -(-units // splits) + _SPLIT_COST * splits

    return min(range(1, most + 1), key=cost)


def tiles_per_split(tiles: int, heads: int, processors: int) -> int:
    """How many tiles of tokens a block of attention takes.

    As many as let the busiest processor end first, one block on each at a time and a
    block costing about a tile before it has its first scores.

    Args:
        tiles: of the tokens of one request.
        heads: KV heads, of all requests.
        processors: of the device.
    """
    fewest = -(-tiles // _MOST_ATTENTION_SPLITS)

    def cost(each: int) -> tuple[int, int]:
        blocks = -(-tiles // each) * heads
        return -(-blocks // processors) * (each + 1), -each

    return min(range(fewest, tiles + 1), key=cost)


def down_parts(experts: int, units: int) -> int:
    """Into how many parts k of an expert is cut, so that all warps have work.

    Args:
        experts: the most that may have rows.
        units: of k.
    """
    return max(1, min(units, -(-DOWN_WARPS // experts)))


def stream_depth(units: int) -> int:
    """How many units of k a warp has in flight across experts.

    Few, that go into an expert: on an H200 more in flight were slower.

    Args:
        units: of k of an expert that a warp takes.
    """
    fitting = (each for each in _STREAM_DEPTHS if units and units % each == 0)
    return next(fitting, _STREAM_DEPTHS[0])
