"""Exceptions that code under test raises, told apart from those of the suite."""

from collections.abc import Iterator
from contextlib import contextmanager


class BackendRaisedError(Exception):
    """A call of the backend's raised; says which call and what, for a failure."""

    def __init__(self, what: str, error: Exception) -> None:
        """Keep `error`, which `what` raised."""
        super().__init__(f"{what} raised {cause(error)}")
        self.error = error


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Call the backend's `what` in the block.

    Raises:
        BackendRaisedError: it raised.
    """
    try:
        yield
    except Exception as error:
        raise BackendRaisedError(what, error) from error


def cause(error: Exception) -> str:
    """The type and the first line of an exception, such as ``KeyError: 'gate'``."""
    first, *_ = [*str(error).splitlines(), ""]
    return f"{type(error).__name__}: {first}".removesuffix(": ")
