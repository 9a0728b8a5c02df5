"""The contract between layerscope and a backend, version `API_VERSION`.

A backend is one `BackendSpec` behind an entry point of the group
``layerscope.backends``. It goes through four steps:

1. *register*: the entry point names it; listing imports nothing.
2. *check*: `BackendSpec.refusals` collects every reason against a layer and device.
3. *build*: `BackendSpec.build` allocates all it needs for one `Problem`, once.
4. *dispatch*: `Built.plan` decides, on the host and at capture, whether it runs a step.

Regions that it does not cover, or that `BackendSpec.declines` names, run on the
fallback.

`BackendSpec.build_draft` does the same for the draft, where a backend has one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from layerscope.environment import DeviceFacts
from layerscope.layers.draft import DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType, Family, LayerSpec
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
    "Step",
    "StepShape",
    "Switch",
    "SwitchKind",
    "Waits",
    "WholeStep",
]

API_VERSION: Final = 1
ENTRY_POINT_GROUP: Final = "layerscope.backends"


@dataclass(frozen=True, slots=True)
class StepShape:
    """The step that dispatch asks about; all a backend may decide on."""

    requests: int
    tokens_per_request: int
    context: int

    @property
    def rows(self) -> int:
        """Rows of the step over all requests."""
        return self.requests * self.tokens_per_request


class Step(Protocol):
    """A step that a backend agreed to run, bound to one problem's buffers.

    Within a region it may name what its kernels do with `regions.role`.
    """

    def run(self, region: Region, pass_index: int) -> None:
        """Enqueue the kernels of `region` of pass `pass_index`.

        Reads and writes the problem's buffers as the family's `RegionSignature` says.
        Must not synchronise with the host, allocate outside torch's caching allocator,
        or depend on host state: it is captured into a graph once.
        """

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """Experts chosen in the last run of the pass, [rows, top_k] integers.

        None where the backend keeps none in memory (dense layers, fused routing).
        """

    def touched_bytes(self, region: Region) -> int | None:
        """Bytes `region` of a pass reads and writes, by operand; None if not known."""


@runtime_checkable
class WholeStep(Protocol):
    """A step whose kernels serve several regions, so that none can be told apart.

    Its kernels are counted as ``other``, and every report says why.
    """

    @property
    def why_whole(self) -> str:
        """Why its kernels belong to no one region, such as "compiled as one graph"."""

    def run_layer(self, pass_index: int) -> None:
        """Enqueue all kernels of pass `pass_index`; as `Step.run` otherwise."""

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """As `Step.expert_ids`."""

    def layer_bytes(self) -> int | None:
        """Bytes that one pass reads and writes; None where it cannot tell."""


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


class DraftStep(Protocol):
    """All greedy tokens of one draft, bound to one `DraftProblem`'s buffers."""

    @property
    def w2_reads(self) -> int:
        """How often a pass reads w2: once a token, or once where it stays on chip."""

    def run(self, pass_index: int) -> None:
        """Enqueue the kernels of pass `pass_index`: fill its ``chosen``, in order.

        Each token is the argmax of its position's base logits and the bias that the
        token before it gives, summed in float32 or wider; ties go to the lowest id.
        Otherwise as `Step.run`.
        """

    def touched_bytes(self) -> int | None:
        """Bytes that one pass reads and writes; None where it cannot tell."""


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
    at it and end at once. The host clears it once the device is idle."""

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

    switches: tuple[Switch, ...] = ()
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
