import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.kernel_cuts import Cut, parse_cut, with_cuts

ROLES = ["gemm", "norm", "add", None]
STEPS = st.tuples(st.sampled_from(["first", "last"]), st.sampled_from(["gemm", "norm"]))


def stretch(roles: list[str | None], number: int = 0) -> pl.DataFrame:
    """One stretch, of which each kernel has a place of its own."""
    return pl.DataFrame(
        {"stretch": number, "place": range(len(roles)), "part": roles},
        schema={"stretch": pl.Int64, "place": pl.Int64, "part": pl.String},
    )


def test_parse_cut_nests_to_the_right() -> None:
    """A place is found by the one that stands after it in the text."""
    parsed = parse_cut("last norm before first gemm after first norm")
    inner = Cut("first", "gemm", "after", Cut("first", "norm"))
    assert parsed == Cut("last", "norm", "before", inner)


@pytest.mark.parametrize(
    "text",
    ["", "gemm", "second gemm", "last gemm before", "last gemm beside last norm"],
)
def test_parse_cut_knows_no_other_words(text: str) -> None:
    """Text that is no place is None."""
    assert parse_cut(text) is None


@given(st.lists(STEPS, min_size=1, max_size=4), st.sampled_from(["before", "after"]))
def test_text_is_what_was_parsed(steps: list[tuple[str, str]], side: str) -> None:
    """A place says of itself what it was parsed from."""
    text = f" {side} ".join(" ".join(step) for step in steps)
    parsed = parse_cut(text)
    assert parsed is not None
    assert parsed.text == text


def test_with_cuts() -> None:
    """A place is that of its stretch, or null where that has no such kernel."""
    cuts = [parse_cut("last gemm before last norm"), parse_cut("first add")]
    frame = pl.concat(
        [stretch(["gemm", "gemm", "norm", "gemm"]), stretch(["norm", "add"], number=1)]
    )
    expected = frame.with_columns(
        pl.Series("last norm", [2, 2, 2, 2, 0, 0]),
        pl.Series("first add", [None, None, None, None, 1, 1], dtype=pl.Int64),
        pl.Series("last gemm before last norm", [1, 1, 1, 1, None, None]),
    )
    found = with_cuts(frame, [cut for cut in cuts if cut])
    assert_frame_equal(found, expected, check_column_order=False)


def test_a_kernel_of_several_roles_is_found_by_each() -> None:
    """A fused all-reduce and norm is an all-reduce and a norm."""
    cuts = [Cut("first", "all_reduce"), Cut("last", "norm")]
    found = with_cuts(stretch(["gemm", "all_reduce+norm", "gemm"]), cuts)
    assert found.select("first all_reduce", "last norm").row(0) == (1, 1)


@given(st.lists(st.sampled_from(ROLES), min_size=1, max_size=8))
def test_with_cuts_finds_what_a_search_finds(roles: list[str | None]) -> None:
    """The last norm before the first product after the first norm, kernel by kernel."""
    norms = [place for place, role in enumerate(roles) if role == "norm"]
    gemms = [place for place, role in enumerate(roles) if role == "gemm"]
    after = [place for place in gemms if norms and place > norms[0]]
    before = [place for place in norms if after and place < after[0]]
    cut = parse_cut("last norm before first gemm after first norm")
    assert cut is not None
    found = with_cuts(stretch(roles), [cut])[cut.text].to_list()
    assert found == [before[-1] if before else None] * len(roles)
