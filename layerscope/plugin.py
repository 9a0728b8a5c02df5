"""The contract between layerscope and a backend, version `API_VERSION`.

A backend is one `BackendSpec` behind an entry point of the group
``layerscope.backends``. It goes through four steps:

1. *register*: the entry point names it; listing imports nothing.
2. *check*: `BackendSpec.refusals` collects every reason against a layer and device.
3. *build*: `BackendSpec.build` allocates all it needs for one `Problem`, once.
4. *dispatch*: `Built.plan` decides, on the host and at capture, whether it runs a step.

Regions that it does not cover, or that `BackendSpec.declines` names, run on the
fallback. Switches that `BackendSpec.idle` names change nothing, and reports say so.

`BackendSpec.build_draft` does the same for the draft, where a backend has one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import torch
from torch import Tensor

from layerscope.environment import DeviceFacts
from layerscope.layers.draft import DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType, Family, LayerSpec
from layerscope.plugin_steps import DraftStep, Stamping, Step, StepShape, WholeStep
from layerscope.regions import Region
from layerscope.requirements import Requires
from layerscope.switches import Switch, SwitchKind

__all__ = [
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "BackendSpec",
    "BuildContext",
    "Built",
    "BuiltDraft",
    "DeviceFacts",
    "DraftContext",
    "DraftStep",
    "Numerics",
    "Requires",
    "Stamping",
    "Step",
    "StepShape",
    "Switch",
    "SwitchKind",
    "Waits",
    "WholeStep",
]

API_VERSION: Final = 1
ENTRY_POINT_GROUP: Final = "layerscope.backends"


class Built(Protocol):
    """A backend built for one problem."""

    @property
    def device_bytes(self) -> int:
        """Device memory it allocated beyond the problem's own."""

    def plan(self, shape: StepShape) -> Step | WholeStep | None:
        """The step to run, or None where it has none for `shape`; host only.

        None for the problem's own step refuses the arm; regions that are left to the
        fallback, even all of them, are named by `BackendSpec.declines`, with reasons.
        """


class BuiltDraft(Protocol):
    """A backend's draft built for one problem."""

    @property
    def device_bytes(self) -> int:
        """Device memory it allocated beyond the problem's own."""

    def plan(self, spec: DraftSpec) -> DraftStep | None:
        """The step to run, or None where it has none for `spec`; host only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What every wait on the device must obey, from the first version of a kernel."""

    abort: Tensor
    """int32 [1] on the device: not 0 once any wait has given up; sticky, all must look
    at it and end at once. The host reads it wherever the device is idle, and clears it:
    an arm that has given up is not measured."""

    deadline_s: float = 0.5
    """The longest any wait may last before it sets `abort` and gives up."""

    peers: tuple[Tensor, ...] = ()
    """A buffer of every rank that this rank may write to; empty on one rank."""

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """What waits on `device` obey, on one rank; none has given up yet."""
        return cls(abort=torch.zeros(1, dtype=torch.int32, device=device))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a backend is given to build a layer from."""

    problem: Problem
    waits: Waits
    switches: Mapping[str, str] = field(default_factory=dict)
    """A value for every switch the backend has."""

    stamps: bool = False
    """Whether steps must be `Stamping`; only where `BackendSpec.stamps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftContext:
    """What a backend is given to build a draft from."""

    problem: DraftProblem
    waits: Waits
    switches: Mapping[str, str] = field(default_factory=dict)
    """A value for every switch the backend has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How far outputs may be from the reference in higher precision on equal inputs.

    The measure is the relative Frobenius norm ``|out - ref| / |ref|`` over the layer's
    output of one pass; the reference computes in fp32 for bf16 and in fp64 for fp32.
    """

    bfloat16: float = 1e-2
    float32: float = 1e-5

    draft_logit: float = 1e-3
    """How far the exact logit of a draft's token may be below the best one."""

    def bound(self, dtype: DType) -> float:
        """The bound for activations of `dtype`."""
        return self.float32 if dtype is DType.FLOAT32 else self.bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """Everything layerscope knows of a backend before it builds it."""

    name: str
    api_version: int
    summary: str
    covers: Mapping[Family, tuple[Region, ...]]
    build: Callable[[BuildContext], Built]
    build_draft: Callable[[DraftContext], BuiltDraft] | None = None
    requires: Requires = Requires()  # noqa: RUF009 (frozen)
    check: Callable[[LayerSpec, DeviceFacts], Sequence[str]] | None = None
    """More reasons against a layer, which read on from the backend's name; no GPU work.

    For what `requires` cannot say, such as "needs a C++ compiler: apt install g++".
    """

    declines: Callable[[LayerSpec], Mapping[Region, str]] | None = None
    """Covered regions that it leaves to the fallback for a layer, each with the reason,
    which reads on from the name: "runs at most 8 rows, not 64". No GPU work.

    `Step.run` is not asked for them; where they are all regions, `build` is not called.
    """

    stamps: bool = False
    """Whether its steps can be `Stamping`."""

    switches: tuple[Switch, ...] = ()
    idle: Callable[[LayerSpec, DeviceFacts], Mapping[str, str]] | None = None
    """Switches that change nothing for a layer on a device: at all of their values the
    same kernels run, whatever the other switches are. Each with the reason, which reads
    on from "changes nothing here: ", such as "there are no experts". No GPU work.

    Not asked of those that `Switch.of` says to be of the draft.
    """

    idle_in_draft: Callable[[DraftSpec, DeviceFacts], Mapping[str, str]] | None = None
    """The same for a draft, but for switches that are of the layer."""

    numerics: Numerics = Numerics()
    waits: tuple[str, ...] = ()
    """Roles of kernels that wait for a kernel beside them, or for another rank."""

    skippable: tuple[Region, ...] = ()
    """Regions that may be disabled in a graph without hanging or corrupting others."""

    pdl_safe: tuple[str, ...] = ()
    """Roles of kernels that wait for their predecessor before they touch what it
    writes, so that a full edge before them may become a programmatic one."""

    def refusals(self, spec: LayerSpec, device: DeviceFacts) -> list[str]:
        """Every reason against `spec` on `device`, read on from the name; no GPU work.

        Raises:
            TypeError: `check` gives text instead of a sequence of reasons.
        """
        reasons = []
        if spec.model.family not in self.covers:
            known = ", ".join(sorted(self.covers))
            reasons.append(f"covers {known}, not {spec.model.family}")
        reasons += self.requires.refusals(spec, device)
        more = () if self.check is None else self.check(spec, device)
        if isinstance(more, str):  # a sequence too, whose letters would be the reasons
            msg = f"check of {self.name} gives text, not a sequence of reasons"
            raise TypeError(msg)
        return [*reasons, *more]
