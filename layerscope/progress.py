"""How long work tells whoever waits for it how far it is."""

from typing import Protocol


class Progress(Protocol):
    """Is told of phases and of steps within them; shows them, or does not."""

    def phase(self, name: str, total: int) -> None:
        """A phase begins that ends after `total` steps; it replaces the one before."""

    def advance(self, steps: int = 1) -> None:
        """`steps` more steps of the current phase are done."""


class SilentProgress:
    """Shows nothing: for output that is not a terminal, and for library use."""

    def phase(self, name: str, total: int) -> None:
        """Do nothing."""

    def advance(self, steps: int = 1) -> None:
        """Do nothing."""
