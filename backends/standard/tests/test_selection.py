from layerscope_standard.selection import Choice, Shape, committed, parse

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


def test_the_committed_table_can_be_read() -> None:
    """It is part of the package, and every candidate in it is one."""
    candidates = {choice.candidate for _, _, choice in committed().rows}
    assert candidates <= {"own", "cublaslt"}
