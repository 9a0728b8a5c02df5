"""Short names of kernels of which no two are equal."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from layerscope.report.kernel_names import LENGTH, short_kernel_name

_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_CUT: Final = "…"
_LEAST: Final = 3  # letters that are left of what tells a name


def distinct_names(names: Iterable[str], length: int = LENGTH) -> dict[str, str]:
    """A short name for each of `names`, at most `length` long, no two of them equal.

    Where `short_kernel_name` gives several names one, each is told with a word that
    only it has, as ``elementwise_kernel<BinaryFunc…MulFunctor``, or else by a number.

    Args:
        names: of kernels; equal ones are one.
        length: of a short name, at least 12.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        groups[short_kernel_name(name, length)].append(name)
    taken = {short for short, group in groups.items() if len(group) == 1}
    found = {}
    for short, group in groups.items():
        if len(group) == 1:
            found[group[0]] = short
            continue
        words = _telling(group, length // 2)
        for number, (name, word) in enumerate(zip(group, words, strict=True), 1):
            told = _ended(short, word, length) if word else short
            while told in taken:
                told = _ended(short, f"#{number}", length)
                number += len(group)  # noqa: PLW2901 (until one is free)
            taken.add(told)
            found[name] = told
    return found


def _telling(names: Sequence[str], length: int) -> list[str]:
    """A word of each that no other has, without what all of these begin with.

    Empty for those that have none.
    """
    words = [list(dict.fromkeys(_WORD.findall(name))) for name in names]
    counts = Counter(word for each in words for word in each)
    own = []
    for each in words:
        alone = [word for word in each if counts[word] == 1]
        named = (word for word in alone if not word.isdigit())
        own.append(next(named, alone[0] if alone else ""))
    begin = len(os.path.commonprefix(own))  # noqa: RUF071 (of letters, not of paths)
    if all(len(word) >= begin + _LEAST for word in own):
        own = [word[begin:] for word in own]
    return [word[:length] for word in own]


def _ended(short: str, end: str, length: int) -> str:
    """`short` cut for `end`."""
    return f"{short[: length - len(end) - 1].rstrip(_CUT)}{_CUT}{end}"
