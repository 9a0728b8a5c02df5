"""Which candidate runs each kernel, by shape, as measured in the chain.

``selection.toml`` keeps what ``benchmarks/selection.py`` has found. A kernel without a
line runs as ``own``, cut as `splitting` plans. A line whose library is not installed is
an error, so that what runs is what was chosen.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Final, Self, TypeAlias

from layerscope.errors import BackendError

Shape: TypeAlias = Mapping[str, int | str]
"""What a kernel's time depends on, such as its rows, outputs and inputs."""

OWN: Final = "own"
CUBLASLT: Final = "cublaslt"
TRITON: Final = "triton"
FLASHINFER: Final = "flashinfer"

CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "norm": (OWN, TRITON, FLASHINFER),
    "qkv": (OWN, CUBLASLT, TRITON),
    "attention": (OWN, FLASHINFER),
    "o_proj": (OWN, CUBLASLT, TRITON),
    "post_norm": (OWN, TRITON, FLASHINFER),
    "router": (OWN, CUBLASLT, TRITON),
    "gate_up": (OWN, TRITON),
    "down": (OWN, TRITON),
}
"""What can run the kernel of a role; ``attention`` with its combination."""

REQUIREMENTS: Final[Mapping[str, str]] = {
    TRITON: "triton",
    FLASHINFER: "flashinfer-python==0.6.13",
}
"""What pip installs for a candidate; the module is called like the candidate."""

_WAITING: Final = frozenset({OWN, TRITON})
"""Candidates whose kernels wait for their predecessors at entry. cuBLASLt's do not, and
flashinfer's let the compiler move loads before the wait."""


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
        """What runs `role` for `shape`.

        Raises:
            BackendError: what was chosen cannot run it, or is not installed.
        """
        if role in self.overrides:
            choice = self.overrides[role]
        else:
            found = (
                choice
                for name, known, choice in self.rows
                if name == role and dict(known) == dict(shape)
            )
            choice = next(found, Choice())
        _check(role, choice)
        return choice

    def overridden(self, role: str, choice: Choice) -> Self:
        """The same with one role run by `choice`."""
        return replace(self, overrides={**self.overrides, role: choice})

    @property
    def foreign_roles(self) -> frozenset[str]:
        """Roles that kernels run, for some shape, which do not wait by themselves."""
        return frozenset(
            role for role, _, choice in self.rows if choice.candidate not in _WAITING
        )

    @property
    def missing_packages(self) -> list[str]:
        """What the choices take that is not installed, as reasons; no import."""
        return [
            f"needs {REQUIREMENTS[name]}, which selection.toml names: "
            f"pip install {REQUIREMENTS[name]}"
            for name in sorted({choice.candidate for _, _, choice in self.rows})
            if name in REQUIREMENTS and find_spec(name) is None
        ]


def _check(role: str, choice: Choice) -> None:
    name = choice.candidate
    known = CANDIDATES.get(role, (OWN,))
    if name not in known:
        msg = (
            f"standard: {name} cannot run {role}; selection.toml may name "
            f"{', '.join(known)} there"
        )
        raise BackendError(msg)
    if name in REQUIREMENTS and find_spec(name) is None:
        msg = (
            f"standard: selection.toml chooses {name} for {role}, which is not "
            f"installed; pip install {REQUIREMENTS[name]}"
        )
        raise BackendError(msg)


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
