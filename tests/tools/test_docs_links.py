import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed")

from tools.docs_links import OUTSIDE, ROOT, relinked


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("gate.md", "[a](ledger.md)", "[a](ledger.md)"),
        ("gate.md", "[a](ledger.md#two-runs)", "[a](ledger.md#two-runs)"),
        ("gate.md", "[a](#here)", "[a](#here)"),
        ("gate.md", "[a](https://host/x)", "[a](https://host/x)"),
        (
            "gate.md",
            "[a\nb](../fixtures/README.md#h200)",
            "[a\nb](repository/fixtures/README.md#h200)",
        ),
        (
            "notebooks/x.md",
            "[a](../../README.md)",
            "[a](../repository/README.md)",
        ),
        ("repository/README.md", "[a](docs/gate.md)", "[a](../gate.md)"),
        (
            "repository/fixtures/README.md",
            "[a](../docs/gate.md) [b](../README.md)",
            "[a](../../gate.md) [b](../README.md)",
        ),
    ],
)
def test_links_to_documents_are_those_of_the_site(
    page: str, text: str, expected: str
) -> None:
    """Pages link to pages, wherever their sources lie; anchors stay."""
    assert relinked(text, page, "") == expected


def test_files_that_are_no_pages_are_in_the_repository() -> None:
    """A link to one leads there where the repository has an address; else it goes."""
    text = "the [run](../fixtures/h200-selftest) of it"
    assert relinked(text, "gate.md", "https://host/owner/name/") == (
        "the [run](https://host/owner/name/blob/HEAD/fixtures/h200-selftest) of it"
    )
    assert relinked(text, "gate.md", "") == "the run of it"


@pytest.mark.parametrize("target", ["../no-such-file.md", "missing.md", "../../x.md"])
def test_links_to_nothing_stay(target: str) -> None:
    """What is not in the checkout is left for MkDocs to complain of."""
    assert relinked(f"[a]({target})", "gate.md", "https://host/n") == f"[a]({target})"


def test_code_stays() -> None:
    """Only links are changed, not what looks like one in code."""
    text = "```\n[a](../README.md)\n```\n"
    assert relinked(text, "gate.md", "") == text


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("gate.md", "![a](images/x.png)", "![a](images/x.png)"),
        ("repository/README.md", "![a](docs/images/x.png)", "![a](../images/x.png)"),
        (
            "repository/README.md",
            '<source srcset="docs/images/x.png"><img alt="a" src="docs/images/x.png">',
            '<source srcset="../images/x.png"><img alt="a" src="../images/x.png">',
        ),
        ("gate.md", '<img src="https://host/x">', '<img src="https://host/x">'),
        ("gate.md", "![a](../fixtures/x.png)", "![a](../fixtures/x.png)"),
    ],
)
def test_pictures_are_those_of_docs(page: str, text: str, expected: str) -> None:
    """One in docs/ is found from any document, and no other is on the site."""
    assert relinked(text, page, "https://host/n") == expected


def test_documents_outside_docs_are_there() -> None:
    """Every document that the site takes from outside docs/ exists."""
    assert [name for name in OUTSIDE if not (ROOT / name).is_file()] == []
