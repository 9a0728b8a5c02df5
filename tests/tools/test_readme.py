import pytest

from tools import readme


def test_shown_outputs_are_replaced() -> None:
    """Only what stands between the two comments changes, trailing blanks go."""
    text = (
        "before\n<!-- $ layerscope show 'a b' -->\nold\n<!-- end -->\nbetween\n"
        "<!-- $ python table.py a -->\n<!-- end -->\nafter\n"
    )
    assert readme.updated(text, lambda command: f"\n{command}  \n\n") == (
        "before\n<!-- $ layerscope show 'a b' -->\n```text\n"
        "['layerscope', 'show', 'a b']\n```\n<!-- end -->\nbetween\n"
        "<!-- $ python table.py a -->\n\n['python', 'table.py', 'a']\n\n"
        "<!-- end -->\nafter\n"
    )


def test_text_without_commands_stays() -> None:
    """A document that shows no output is left as it is."""
    text = "# Title\n\n<!-- a comment -->\n"
    assert readme.updated(text, lambda _: "unused") == text


@pytest.mark.parametrize("name", readme.DOCUMENTS)
def test_documents_are_up_to_date(name: str) -> None:
    """Each shows what the commands it names print today: run `make readme`."""
    text = (readme.ROOT / name).read_text(encoding="utf-8")
    assert readme.updated(text, readme.output) == text
