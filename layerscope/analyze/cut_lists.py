"""Kernels that may each be in another layer, at the same place of it: possible cuts."""

from typing import Final

import numpy as np

from layerscope.analyze.kernel_line import Ints, KernelLine

_MOST_COUNTS: Final = 64
_USUAL: Final = (
    0.8  # quantile of the distances of cores: that of layers, of most traces
)
_NEAR: Final = 0.15  # share of it
_RATHER_NEAR: Final = 0.45
_PERHAPS_NEAR: Final = 0.6


def core_cuts(line: KernelLine) -> Ints:
    """Where the core of attention begins, once a layer.

    Several kernels may share the work, requests of one kind may have a kernel of their
    own, and there is cross-attention. So a core is of the layer of the one before it if
    it directly follows it, or is much nearer to it than layers usually are to each
    other, or rather near and another kernel. Where MLPs are known, one between two
    cores tells their layers apart, and the lack of one that they are the same.
    """
    is_first = line.is_core & ~np.append(np.zeros(1, np.bool_), line.is_core[:-1])
    cores = np.flatnonzero(is_first)
    if cores.size < 2:  # noqa: PLR2004 (there is nothing between them)
        return cores
    share = np.diff(cores) / np.quantile(np.diff(cores), _USUAL)
    is_other = np.diff(line.identity[cores]) != 0
    is_near = (share <= _NEAR) | (is_other & (share <= _RATHER_NEAR))
    fed = np.diff(np.cumsum(line.is_feed)[cores])
    if fed.any():
        is_near = (fed == 0) & (is_near | (share <= _PERHAPS_NEAR))
    firsts: Ints = cores[np.append(np.ones(1, np.bool_), ~is_near)]
    return firsts


def token_cuts(words: Ints, most: int, fewest: int) -> list[Ints]:
    """Where each word is, of words that are at least `fewest` times in a line.

    Most kernels of a layer are once in it, so that counts which many words share come
    from layers; others are not looked at, if there are very many.

    Args:
        words: One a kernel: its identity, or a number for it and what follows.
        most: So many words at most are taken of those that are equally often there.
        fewest: Any count.
    """
    order = np.argsort(words, kind="stable")
    begins = np.flatnonzero(np.diff(words[order], prepend=words[order[:1]] - 1))
    sizes = np.diff(np.append(begins, words.size))
    counts, shared = np.unique(sizes[sizes >= fewest], return_counts=True)
    found = []
    for size in np.sort(counts[np.argsort(-shared, kind="stable")[:_MOST_COUNTS]]):
        equal = begins[sizes == size]
        equal = equal[np.argsort(order[equal], kind="stable")]  # the earliest first
        found += [order[begin : begin + size] for begin in equal[:most]]
    return found


def phrases(identity: Ints, length: int) -> Ints:
    """A number for each kernel and the `length` - 1 after it; equal for equal ones."""
    mixed = np.zeros(identity.size - length + 1, dtype=np.uint64)
    for offset in range(length):
        part = identity[offset : offset + mixed.size].astype(np.uint64)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + part + np.uint64(1)
    return np.unique(mixed, return_inverse=True)[1].astype(np.int64)
