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


def test_long_outputs_are_cut_where_the_command_says_so() -> None:
    """Of a command with `sed`, the head alone is shown; what runs has no pipe."""
    text = "<!-- $ layerscope show a | sed '/^$/q' -->\nold\n<!-- end -->\n"
    assert readme.updated(text, lambda command: f"{command}\nb\n\nc\n") == (
        "<!-- $ layerscope show a | sed '/^$/q' -->\n```text\n"
        "['layerscope', 'show', 'a']\nb\n```\n<!-- end -->\n"
    )


def test_a_table_is_cut_out_where_the_command_says_so() -> None:
    """From a line that begins with the title to the next empty one, every time."""
    text = "<!-- $ layerscope show a | sed -n '/^b, /,/^$/p' -->\nold\n<!-- end -->\n"
    printed = "a\nb: 1\n\nb, in µs\nc\n\nd\nb, again\n"
    assert readme.updated(text, lambda _: printed) == (
        "<!-- $ layerscope show a | sed -n '/^b, /,/^$/p' -->\n```text\n"
        "b, in µs\nc\n\nb, again\n```\n<!-- end -->\n"
    )


def test_a_table_that_is_not_there_is_an_error() -> None:
    """A title that is no longer printed leaves no empty block behind."""
    text = "<!-- $ layerscope show a | sed -n '/^b, /,/^$/p' -->\nold\n<!-- end -->\n"
    with pytest.raises(
        ValueError, match=r"^no line that is printed begins with 'b, '$"
    ):
        readme.updated(text, lambda _: "a\n")


def test_documents_are_all_that_show_outputs() -> None:
    """No page has a command above its output that is not run anew."""
    pages = sorted((readme.ROOT / "docs").glob("**/*.md"))
    assert [
        str(page.relative_to(readme.ROOT))
        for page in pages
        if "\n<!-- $ " in page.read_text(encoding="utf-8")
    ] == sorted(name for name in readme.DOCUMENTS if name.startswith("docs/"))


def test_text_without_commands_stays() -> None:
    """A document that shows no output is left as it is."""
    text = "# Title\n\n<!-- a comment -->\n"
    assert readme.updated(text, lambda _: "unused") == text


@pytest.mark.parametrize("name", readme.DOCUMENTS)
def test_documents_are_up_to_date(name: str) -> None:
    """Each shows what the commands it names print today: run `make readme`."""
    text = (readme.ROOT / name).read_text(encoding="utf-8")
    assert readme.updated(text, readme.output) == text
