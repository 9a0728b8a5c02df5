"""Stands for `graphs.settling.settled` where there is no GPU."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def noting(done: list[str]) -> Callable[..., AbstractContextManager[None]]:
    """A `settled` that adds to `done` when its block begins and when it has ended."""

    @contextmanager
    def settled(*_: object) -> Iterator[None]:
        done.append("settled")
        yield
        done.append("let go")

    return settled
