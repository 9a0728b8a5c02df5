from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="griffe is not installed")

import griffe

from tools.docs_fields import FieldComments, comment

SOURCE = '''
LIMIT = 3  # of a module

class Spec:
    context: int = 8192  # tokens in the cache, of a rank's request
    name: str = "a # b"
    mark: str = "#"  # what it's called
    told: int = 1  # not this
    """This."""
    wide: int = max(  # goes on
        1, 2
    )
    quiet: int = 1  # noqa: A003
'''


def test_comments_behind_fields_are_their_docstrings(tmp_path: Path) -> None:
    """Fields of a class without a docstring get the comment on their line."""
    extensions = griffe.load_extensions(FieldComments())
    (tmp_path / "spec.py").write_text(SOURCE, encoding="utf-8")
    module = griffe.load("spec", search_paths=[tmp_path], extensions=extensions)
    docs = {
        name: member.docstring and member.docstring.value
        for name, member in module["Spec"].members.items()
    }
    assert docs == {
        "context": "tokens in the cache, of a rank's request",
        "name": None,
        "mark": "what it's called",
        "told": "This.",
        "wide": None,
        "quiet": None,
    }
    assert module["LIMIT"].docstring is None


def test_a_comment_is_no_part_of_text() -> None:
    """A number sign within quotes begins no comment."""
    assert comment('name: str = "a # b"') == ""
    assert comment('name: str = "a # b"  # c') == "c"
