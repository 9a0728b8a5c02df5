"""Switches of backends, and the arms between which one switch at a time is turned."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class SwitchKind(StrEnum):
    """What a switch changes; fixes how its effect is tried."""

    OVERLAP = "overlap"
    """When kernels start, trigger or load, and nothing else: without programmatic
    edges it must make no difference."""

    FUSION = "fusion"
    """How the work is divided into kernels."""

    KERNEL = "kernel"
    """How one kernel does its work."""

    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One mechanism of a backend that can be turned."""

    name: str
    values: tuple[str, ...]
    """Allowed values; the first is the default."""

    toggles: str
    """What changes, in one sentence."""

    bitwise: bool = False
    """Whether outputs are bit for bit the same at every value."""

    off: str = ""
    """The value without the mechanism; empty where it is the last one."""

    kind: SwitchKind = SwitchKind.OTHER

    starts_early: tuple[str, ...] = ()
    """Roles of kernels that, because of it, work before the kernel before them has
    ended; the dose test delays the first."""

    of: str = ""
    """Which of ``layer`` and ``draft`` it is of, where it changes nothing in the other;
    empty where it may in both."""

    @property
    def off_value(self) -> str:
        """The value without the mechanism."""
        return self.off or self.values[-1]

    @property
    def on_value(self) -> str:
        """The value with all of it: the first that is not off; none if only off is."""
        return next((value for value in self.values if value != self.off_value), "")


class SwitchArms(msgspec.Struct, frozen=True, kw_only=True):
    """The arms, by name, between which one switch of a backend is turned."""

    name: str  # of the switch
    only: str = ""  # the arm with this switch on and all others off; empty where idle
    without: str = ""  # the arm with this switch off and all others on; as `only`
    toggles: str = ""
    kind: str = SwitchKind.OTHER
    bitwise: bool = False
    delayed: str = ""  # what the dose test delays, as `Experiment.delay`; empty: none
    idle: str = ""  # why it changes nothing here, and has no arms; empty where it does


class TakenApart(msgspec.Struct, frozen=True, kw_only=True):
    """A backend whose switches are told apart, and the arms that do so, by name."""

    backend: str
    off: str  # the arm with every switch off that is not idle; empty where all are
    on: str  # the arm with every switch on; as `off`
    switches: tuple[SwitchArms, ...]
    rebuilt: str = ""  # as `off`, built once more: what another build is worth
