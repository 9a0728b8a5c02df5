import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.variants import most_common_variants, pass_variants
from layerscope.passes import GRAPH_PASS_KEYS

Kernels = list[tuple[str, str]]

DENSE: Kernels = [("attention", "attend"), ("mlp", "up"), ("mlp", "down")]
MIXED: Kernels = [("attention", "attend"), ("moe", "route"), ("moe", "experts")]


def kernels(*replays: list[Kernels]) -> pl.DataFrame:
    """Passes of kernels, in replays; no names have roles."""
    rows = [
        (0, replay, replay, index, node, region, None, name)
        for replay, passes in enumerate(replays)
        for index, one in enumerate(passes)
        for node, (region, name) in enumerate(one)
    ]
    names = [*GRAPH_PASS_KEYS, "node", "region", "role", "name"]
    return pl.DataFrame(rows, schema=names, orient="row")


def numbers(found: pl.DataFrame) -> list[int]:
    """The variant of every pass in order."""
    return found["variant"].to_list()


def test_variants_are_numbered_as_they_come() -> None:
    """Dense layers first, then others, then a dense one that is as the first."""
    found = pass_variants(kernels([DENSE, MIXED, MIXED, DENSE], [DENSE]))
    assert_frame_equal(
        found,
        pl.DataFrame(
            [
                (0, 0, 0, 0, 0),
                (0, 0, 0, 1, 1),
                (0, 0, 0, 2, 1),
                (0, 0, 0, 3, 0),
                (0, 1, 1, 0, 0),
            ],
            schema=[*GRAPH_PASS_KEYS, "variant"],
            orient="row",
        ),
    )


def test_order_within_a_region_tells_variants_apart() -> None:
    """Kernels of two regions may change places, those of one may not."""
    across = [DENSE[1], DENSE[0], DENSE[2]]
    within = [DENSE[0], DENSE[2], DENSE[1]]
    assert numbers(pass_variants(kernels([DENSE, across, within]))) == [0, 0, 1]


def test_the_most_common_variant_of_each_index() -> None:
    """Over replays; of equally common ones that of the lower number."""
    found = pass_variants(kernels([DENSE, MIXED], [DENSE, DENSE], [MIXED, DENSE]))
    by_index = most_common_variants(found, ["pass_index"])
    assert by_index.rows() == [(0, 0), (1, 0)]
    even = pass_variants(kernels([DENSE, MIXED], [MIXED, DENSE]))
    assert most_common_variants(even, ["pass_index"]).rows() == [(0, 0), (1, 0)]


def test_the_most_common_variant_of_all() -> None:
    """Without columns, all passes are counted together."""
    found = pass_variants(kernels([DENSE, MIXED, MIXED]))
    assert most_common_variants(found, []).rows() == [(1,)]
