"""The header of a run, ``run.json``: everything of it but its rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from layerscope.environment import Environment
from layerscope.errors import RecordError
from layerscope.experiment import Experiment
from layerscope.study import Study

FORMAT_VERSION: Final = 4
# What changed in a run's files, by format version:
# 1  the first
# 2  a study's spec says what it is of: "type" is "layer", "draft" or "callables"; a run
#    may hold the run of its draft in a folder of its own
# 3  graphs may be edited: a study's experiments, what became of each, the costs that
#    are subtracted from their times, and the limits of the machine
# 4  a run may be made of a trace: its spec is "trace", it has no samples and no A/A
#    arm, and the index -1 is also that of kernels after the last pass


def _name_the_spec(header: dict[str, Any]) -> dict[str, Any]:
    """Version 1 to 2: what was measured was always a layer."""
    study = header["study"]
    spec = {"type": "layer", **study["spec"]}
    return {**header, "format_version": 2, "study": {**study, "spec": spec}}


def _has_no_experiments(header: dict[str, Any]) -> dict[str, Any]:
    """Version 2 to 3: what is new has defaults that say that there was none."""
    return {**header, "format_version": 3}


def _is_no_trace(header: dict[str, Any]) -> dict[str, Any]:
    """Version 3 to 4: nothing of a measured run has changed."""
    return {**header, "format_version": 4}


_MIGRATIONS: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    1: _name_the_spec,
    2: _has_no_experiments,
    3: _is_no_trace,
}
"""For each old version, the step that turns its header into the next version's."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Which backend dispatch chose for a region of an arm, and why."""

    arm: str
    region: str
    backend: str
    reason: str = ""  # empty where the arm's own backend runs it


class IdleSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """A switch that changes nothing for what a run measures, at none of its values."""

    backend: str
    switch: str
    reason: str  # reads on from "changes nothing here: "
    of_other: bool = False  # of the draft where this is the layer, or the other way


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """What building an arm cost."""

    arm: str
    seconds: float
    device_bytes: int


class NumericsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """An arm's error against what is right, and its bound."""

    arm: str
    # Worst of the checked passes. Layers: relative Frobenius norm. Drafts: how far a
    # token's logit is below the best. Callables: relative norm against the first arm.
    error: float
    bound: float
    passes: bool


class BitsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two arms that differ by one switch gave outputs of the same bits."""

    backend: str
    switch: str
    off: str  # the arm without it
    on: str  # the arm with it
    is_equal: bool


class RegionBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a region of one pass moves: a mean over the drawn routing."""

    arm: str
    region: str
    touched: int | None  # null where the backend cannot tell
    required: int


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """Replays that were thrown away, and why."""

    arm: str
    replays: int
    reason: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an experiment on the graph of an arm."""

    arm: str
    experiment: Experiment
    # "same": the graph already is what the experiment would make of it, so the samples
    # of the captured graph are its samples too. "discarded": it ran, and its results
    # were not those of the captured graph.
    outcome: Literal["measured", "same", "refused", "discarded"]
    reason: str = ""  # why it was not measured, or not kept
    edges_changed: int = 0
    nodes_disabled: int = 0


class KernelCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiler adds to a kernel of a serial chain, by its blocks."""

    blocks: int
    added_ns: float
    low_ns: float  # 95 % interval
    high_ns: float


class DisabledCost(msgspec.Struct, frozen=True, kw_only=True):
    """What disabled nodes in a row cost, all of them together."""

    nodes: int
    cost_ns: float


LaunchPhase: TypeAlias = Literal["anchor", "after", "bounds", "reads"]


class LaunchCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a small kernel takes after another in a graph, at some time of the study."""

    phase: LaunchPhase  # right after which replays it was measured, and beside them
    kernel_ns: float
    low_ns: float  # 95 % interval
    high_ns: float


class ReadCost(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one kernel that reads so many cold bytes, its launch included."""

    bytes: int
    duration_ns: float


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a pass that order, bytes and dependencies alone would cost here."""

    arm: str  # whose kernels; empty: the standard chain of the layer
    name: str  # "no PDL", "stock PDL", "legal early start", "all early", "one read"
    pass_ns: float
    low_ns: float  # 95 % interval
    high_ns: float
    kernels: int
    bytes: int


class RunHeader(msgspec.Struct, kw_only=True):
    """Everything of a run but its rows: plan, machine, decisions, warnings."""

    created: str  # UTC, ISO 8601
    command: list[str]
    study: Study
    environment: Environment
    format_version: int = FORMAT_VERSION
    status: Literal["complete", "partial"] = "partial"
    status_reason: str = (
        "still running, or it could not finish: killed, or the disk was full"
    )
    # "cupti", "torch.profiler", or the format of a trace; empty where nothing was
    # recorded
    recorder: str = ""
    decisions: list[Decision] = []
    idle_switches: list[IdleSwitch] = []  # of the backends of the study's arms
    weights: str = ""  # where they came from, in words
    host_memory_bytes: int = 0  # largest resident set of the process
    seconds: dict[str, float] = {}  # wall time of what came before, and of "study"
    phases: dict[str, float] = {}  # seconds of the study by what was done in them
    builds: list[Build] = []
    numerics: list[NumericsCheck] = []
    bits: list[BitsCheck] = []  # of the switches that the study tells apart
    distinct_experts: list[list[int]] = []  # [steps][passes]; empty for dense layers
    bytes: list[RegionBytes] = []
    drops: list[Drop] = []
    w2_reads: dict[str, int] = {}  # of a draft, by arm: how often a pass reads w2
    trials: list[Trial] = []
    observer_costs: list[KernelCost] = []  # by blocks, ascending
    disabled_costs: list[DisabledCost] = []  # by nodes, ascending
    launch_costs: list[LaunchCost] = []  # one a capture, in the order of measuring
    reads: list[ReadCost] = []  # by bytes, ascending
    bounds: list[Bound] = []
    # by arm: nodes of the longest replay, in creation order, into which a programmatic
    # edge leads
    programmatic: dict[str, list[int]] = {}
    warnings: list[str] = []


def read_header(path: Path) -> RunHeader:
    """The header in the file `path`, of this format version or any before it.

    Raises:
        RecordError: the file is damaged, or of a newer format.
    """
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"{path} is damaged ({error}); record the run again"
        raise RecordError(msg) from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        msg = f"{path} names no format version; is it a run of layerscope?"
        raise RecordError(msg)
    if version > FORMAT_VERSION:
        msg = (
            f"{path} was written by a newer layerscope (format {version}, this one "
            f"reads up to {FORMAT_VERSION}); upgrade layerscope to read it"
        )
        raise RecordError(msg)
    try:
        for old in range(version, FORMAT_VERSION):
            raw = _MIGRATIONS[old](raw)
        return msgspec.convert(raw, RunHeader)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        msg = f"{path} is not as layerscope writes it ({error}); record the run again"
        raise RecordError(msg) from error
