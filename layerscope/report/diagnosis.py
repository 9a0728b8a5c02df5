"""What can and cannot be measured on a machine: one finding a topic, in sections."""

from enum import StrEnum

import msgspec

from layerscope.environment import DeviceFacts


class State(StrEnum):
    """How much of a topic can be used here."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"
    REFUSED = "refused"
    """There, but in a state in which ``layerscope profile`` does not measure."""

    NOT_APPLICABLE = "n/a"


class Finding(msgspec.Struct, frozen=True):
    """One topic on this machine."""

    topic: str
    state: State
    found: str
    """What is there, with versions."""

    meaning: str = ""
    """What that means for measuring; empty where nothing is lost."""

    fix: str = ""
    """A command, or what to do; empty where there is nothing to mend."""

    blocks: bool = False
    """Whether no study can be run until it is mended."""


class Section(msgspec.Struct, frozen=True):
    """Findings that belong together."""

    title: str
    findings: tuple[Finding, ...]


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that was found, and the device that a study would measure."""

    device: DeviceFacts | None
    """None where there is no torch to tell it, or no device of the kind asked for."""

    sections: tuple[Section, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all sections, in order."""
        return tuple(found for section in self.sections for found in section.findings)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """What must be mended before anything can be measured."""
        return tuple(finding for finding in self.findings if finding.blocks)

    @property
    def is_ready(self) -> bool:
        """Whether a study can be run here."""
        return not self.blocking


def not_applicable(topics: tuple[str, ...], why: str) -> tuple[Finding, ...]:
    """A finding for each of `topics` that has no meaning here."""
    return tuple(Finding(topic, State.NOT_APPLICABLE, why) for topic in topics)
