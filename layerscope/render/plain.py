"""Text of others, such as names of kernels, regions and arms, as what can be shown."""

from typing import Final
from unicodedata import category

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})
"""Categories of what is no glyph, but moves, hides or ends text, or is not text."""


def plain(text: str) -> str:
    r"""`text` with its control characters written out: ``\x1b``, ``\n``, ``\u202e``.

    A terminal obeys them, a table breaks at them, and what draws charts ends the
    process at those that XML does not know.
    """
    if text.isprintable():
        return text
    return "".join(_written(each) for each in text)


def _written(character: str) -> str:
    if category(character) in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
