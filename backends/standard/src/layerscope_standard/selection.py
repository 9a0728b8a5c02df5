"""Which candidate runs each kernel, by shape, as measured in the chain.

``selection.toml`` keeps what ``benchmarks/selection.py`` has found. A kernel without a
line runs as ``own``, cut as `splitting` plans.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Final, Self, TypeAlias

Shape: TypeAlias = Mapping[str, int | str]
"""What a kernel's time depends on, such as its rows, outputs and inputs."""

OWN: Final = "own"
CUBLASLT: Final = "cublaslt"

PRODUCTS: Final = ("qkv", "o_proj", "router")
"""Roles that a library may run."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a kernel."""

    candidate: str = OWN
    options: Mapping[str, int] = field(default_factory=dict)
    """How an own kernel is cut, where not as planned, such as ``splits``."""

    def option(self, name: str, planned: int) -> int:
        """The value of an option, or what was planned."""
        return self.options.get(name, planned)


@dataclass(frozen=True, slots=True)
class Selection:
    """The choices of a table, and those that override it."""

    rows: tuple[tuple[str, Shape, Choice], ...] = ()
    """Role, shape and what was chosen for it."""

    overrides: Mapping[str, Choice] = field(default_factory=dict)
    """By role, whatever the shape; for measuring."""

    def choose(self, role: str, shape: Shape) -> Choice:
        """What runs `role` for `shape`."""
        if role in self.overrides:
            return self.overrides[role]
        found = (
            choice
            for name, known, choice in self.rows
            if name == role and dict(known) == dict(shape)
        )
        return next(found, Choice())

    def overridden(self, role: str, choice: Choice) -> Self:
        """The same with one role run by `choice`."""
        return replace(self, overrides={**self.overrides, role: choice})

    @property
    def foreign_roles(self) -> frozenset[str]:
        """Roles that a library runs for some shape."""
        return frozenset(
            role for role, _, choice in self.rows if choice.candidate != OWN
        )


def parse(text: str) -> Selection:
    """A table from its TOML."""
    rows = tomllib.loads(text).get("choice", [])
    return Selection(
        tuple(
            (
                row["role"],
                row["shape"],
                Choice(row["candidate"], row.get("options", {})),
            )
            for row in rows
        )
    )


@cache
def committed() -> Selection:
    """The table of this package."""
    file = files("layerscope_standard") / "selection.toml"
    return parse(file.read_text(encoding="utf-8"))
