import pytest

from layerscope.errors import BackendError
from layerscope_standard import selection
from layerscope_standard.selection import CANDIDATES, Choice, Shape, committed, parse

TABLE = """
[[choice]]
role = "qkv"
shape = { weights = "bfloat16", rows = 6 }
candidate = "cublaslt"

[[choice]]
role = "down"
shape = { rows = 6 }
candidate = "own"
options = { parts = 2 }
"""
SHAPE: Shape = {"rows": 6, "weights": "bfloat16"}


def test_a_line_chooses_for_its_role_and_shape() -> None:
    """Whatever the order of its fields; all else runs as own, as planned."""
    table = parse(TABLE)
    assert table.choose("qkv", SHAPE) == Choice("cublaslt")
    assert table.choose("qkv", {**SHAPE, "rows": 5}) == Choice("own")
    assert table.choose("o_proj", SHAPE) == Choice("own")
    assert table.choose("down", {"rows": 6}).option("parts", 1) == 2
    assert table.choose("down", {"rows": 5}).option("parts", 1) == 1


def test_an_override_is_taken_for_every_shape() -> None:
    """For one role only, and of the new table only."""
    table = parse(TABLE)
    changed = table.overridden("qkv", Choice(options={"splits": 4}))
    assert changed.choose("qkv", SHAPE) == Choice(options={"splits": 4})
    assert changed.choose("down", {"rows": 6}) == Choice(options={"parts": 2})
    assert table.choose("qkv", SHAPE) == Choice("cublaslt")


def test_roles_of_libraries_are_told() -> None:
    """Their kernels do not wait for others by themselves."""
    assert parse(TABLE).foreign_roles == {"qkv"}


def test_what_waits_by_itself_is_no_foreign_role() -> None:
    """Triton's kernels do; flashinfer's are not trusted to."""
    table = TABLE.replace("cublaslt", "triton")
    assert parse(table).foreign_roles == set()
    table = TABLE.replace("cublaslt", "flashinfer").replace("qkv", "norm")
    assert parse(table).foreign_roles == {"norm"}


def test_what_cannot_run_a_role_is_refused() -> None:
    """With what can."""
    table = parse(TABLE.replace("cublaslt", "flashinfer"))
    with pytest.raises(BackendError, match=r"flashinfer cannot run qkv; .* own, cubl"):
        table.choose("qkv", SHAPE)


def test_nothing_runs_in_place_of_a_missing_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a reason beforehand, and an error where the role is built."""
    table = parse(TABLE.replace("cublaslt", "triton"))
    monkeypatch.setattr(selection, "find_spec", lambda _: None)
    assert table.missing_packages == [
        "needs triton, which selection.toml names: pip install triton"
    ]
    assert parse(TABLE).missing_packages == []
    with pytest.raises(BackendError, match=r"chooses triton for qkv, .* not installed"):
        table.choose("qkv", SHAPE)
    assert table.choose("qkv", {**SHAPE, "rows": 5}) == Choice("own")
    monkeypatch.setattr(selection, "find_spec", lambda _: object())
    assert table.missing_packages == []
    assert table.choose("qkv", SHAPE) == Choice("triton")


def test_the_committed_table_can_be_read() -> None:
    """It is part of the package, and every candidate in it can run its role."""
    for role, _, choice in committed().rows:
        assert choice.candidate in CANDIDATES[role]
