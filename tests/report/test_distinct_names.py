import hypothesis.strategies as st
import pytest
from hypothesis import given

from layerscope.report.distinct_names import distinct_names

BINARY = "void elementwise_kernel<128, {}, at::BinaryFunctor<float, {}> >(int)"
MULTIPLY = BINARY.format(4, "MulFunctor")
DIVIDE = BINARY.format(2, "DivFunctor")


@pytest.mark.parametrize(
    ("names", "length", "shown"),
    [
        (["gemm", "gemm", "norm"], 40, ["gemm", "norm"]),
        (
            [MULTIPLY, DIVIDE],
            40,
            [
                "elementwise_kernel<BinaryFunc…MulFunctor",
                "elementwise_kernel<BinaryFunc…DivFunctor",
            ],
        ),
        (
            [f"sm90_xmma_gemm_bf16_tn_tilesize{tile}" for tile in ("128x64", "64x64")],
            20,
            ["sm90_xmma_gem…128x64", "sm90_xmma_gemm…64x64"],
        ),
        # only the number of threads differs
        (
            ["void copy<float, 1>(int)", "void copy<float, 2>(int)"],
            40,
            ["copy…1", "copy…2"],
        ),
        # the order alone differs
        (
            ["void copy<float, int>(int)", "void copy<int, float>(int)"],
            40,
            ["copy", "copy…#2"],
        ),
        # one has nothing that the other lacks, and its short name stays
        (
            ["void copy<int>(int)", "void copy<int, Half>(int)"],
            40,
            ["copy", "copy…Half"],
        ),
    ],
)
def test_names(names: list[str], length: int, shown: list[str]) -> None:
    """Equal short names are told with what differs, or by a number."""
    assert list(distinct_names(names, length).values()) == shown


@given(
    names=st.lists(st.text(alphabet="ab1_<>( ,:", min_size=1, max_size=30)),
    length=st.integers(12, 20),
)
def test_no_two_are_equal(names: list[str], length: int) -> None:
    """Whatever the names are, each is there, short, and unlike all others."""
    found = distinct_names(names, length)
    assert set(found) == set(names)
    assert len(set(found.values())) == len(found)
    assert all(0 < len(short) <= length for short in found.values())
