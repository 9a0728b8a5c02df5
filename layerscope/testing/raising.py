"""Exceptions that code under test raises, told apart from those of the suite."""

from collections.abc import Iterator
from contextlib import contextmanager

from layerscope.errors import describe


class BackendRaisedError(Exception):
    """A call of the backend's raised; says which call and what, for a failure."""

    def __init__(self, what: str, error: Exception) -> None:
        """Keep `error`, which `what` raised."""
        super().__init__(f"{what} raised {describe(error)}")
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
