"""Gives fields the comment behind them as their docstring, in the API reference.

An extension of griffe, which reads the sources for mkdocstrings. Fields of structs are
explained by a comment on their line, as in ``context: int = 8192  # tokens in the KV``.
"""

from io import StringIO
from tokenize import COMMENT, TokenError, generate_tokens
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Takes comments of fields that have no docstring."""

    def on_attribute(
        self,
        *,
        attr: griffe.Attribute,
        **_: Any,  # noqa: ANN401 (whatever griffe tells besides)
    ) -> None:
        """Give `attr` a docstring where a comment stands on its line."""
        in_class = attr.parent is not None and attr.parent.is_class
        if attr.docstring is not None or not in_class or attr.lineno is None:
            return
        text = comment(attr.source.partition("\n")[0])
        if text and not text.startswith("noqa"):
            attr.docstring = griffe.Docstring(text, lineno=attr.lineno, parent=attr)


def comment(line: str) -> str:
    """The comment at the end of a line of code; empty of a line without one."""
    try:
        tokens = list(generate_tokens(StringIO(line.strip()).readline))
    except TokenError:  # it goes on below
        return ""
    comments = [token.string for token in tokens if token.type == COMMENT]
    return comments[0].lstrip("# ") if comments else ""
