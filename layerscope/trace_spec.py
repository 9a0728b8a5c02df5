"""What a run that was made of a trace of another tool is of.

Nobody planned it: which work the steps did is not known, only how many there are and
how many layers were found in them.
"""

from typing import Final

import msgspec

UNTRUSTED: Final = "untrusted: "
"""What a warning begins with that must be said before any number of a trace."""

STEP: Final = "step"
"""The arm of steps of which nobody says what they are."""


class TraceSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one kind on one device: an arm of the run."""

    arm: str
    kind: str  # "decode", "prefill", "mixed" or "unknown"
    device: int | None = None  # as the trace numbers it
    rank: int | None = None  # of the process, where the trace tells
    steps: int
    layers: int  # of most steps; 0 where none were found, and a pass is a whole step
    variants: dict[str, int] = {}  # of such a step: layers of each variant
    # variants of the layers of a step in their order, as "0:A 1:A 2:B": of which steps
    layer_variants: dict[str, list[int]] = {}
    cut_steps: list[int] = []  # those with a layer of which only a part was recorded
    why_no_gaps: str = ""  # why gaps cannot be told from kernels; empty where they can

    @property
    def is_cut(self) -> bool:
        """Whether each step is: then it may have more than `layers`."""
        return len(self.cut_steps) == self.steps

    @property
    def unit(self) -> str:
        """What a pass of it is."""
        return "layer" if self.layers else STEP


class TraceSpec(msgspec.Struct, frozen=True, kw_only=True, tag="trace"):
    """Files of another tool, and what was found in them."""

    files: tuple[str, ...]  # their names
    format: str
    written_by: str = ""  # tool and version, as far as the files tell
    recorded: str = ""  # UTC, ISO 8601; empty where the files do not tell
    steps: tuple[TraceSteps, ...]  # one an arm
    # kernel time by what its regions are from: "rule", "range", "neighbours", "nothing"
    assigned_ns: dict[str, int] = {}

    def steps_of(self, arm: str) -> TraceSteps:
        """What `arm` stands for; `KeyError` where there is no such arm."""
        return {each.arm: each for each in self.steps}[arm]
