"""The contract between layerscope and a backend, version `API_VERSION`.

A backend is one `BackendSpec` behind an entry point of the group
``layerscope.backends``. It goes through four steps:

1. *register*: the entry point names it; listing imports nothing.
2. *check*: `BackendSpec.refusals` collects every reason against a layer and device.
3. *build*: `BackendSpec.build` allocates all it needs for one `Problem`, once.
4. *dispatch*: `Built.plan` decides, on the host and at capture, whether it runs a step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from torch import Tensor

from layerscope.environment import DeviceFacts
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType, Family, LayerSpec
from layerscope.regions import Region

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
    """A step that a backend agreed to run, bound to one problem's buffers."""

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
        """Bytes that `region` of one pass reads and writes, operand by operand.

        None where the backend cannot tell.
        """


class Built(Protocol):
    """A backend built for one problem."""

    device_bytes: int
    """Device memory it allocated beyond the problem's own."""

    def plan(self, shape: StepShape) -> Step | None:
        """The step to run, or None to leave it to the fallback; host only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a backend is given to build from."""

    problem: Problem
    switches: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float = 0.5
    """The longest any wait on the device may last."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires:
    """Where a backend can run; an empty tuple means anywhere."""

    device_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    weight_dtypes: tuple[DType, ...] = ()
    tp_sizes: tuple[int, ...] = ()
    max_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How far outputs may be from the reference in higher precision on equal inputs.

    The measure is the relative Frobenius norm ``|out - ref| / |ref|`` over the layer's
    output of one pass; the reference computes in fp32 for bf16 and in fp64 for fp32.
    """

    bfloat16: float = 1e-2
    float32: float = 1e-5

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
    requires: Requires = Requires()
    switches: tuple[Switch, ...] = ()
    numerics: Numerics = Numerics()
    skippable: tuple[Region, ...] = ()
    """Regions that may be disabled in a graph without hanging or corrupting others."""

    def refusals(self, spec: LayerSpec, device: DeviceFacts) -> list[str]:
        """Every reason why this backend cannot run `spec` on `device`; no GPU work."""
        reasons = []
        if spec.model.family not in self.covers:
            known = ", ".join(sorted(self.covers))
            reasons.append(f"covers {known}, not {spec.model.family}")
        for what, value, allowed in (
            ("device", device.type, self.requires.device_types),
            ("architecture", device.architecture, self.requires.architectures),
            ("dtype", spec.dtype, self.requires.dtypes),
            ("weight dtype", spec.weight_dtype, self.requires.weight_dtypes),
            ("tensor-parallel size", spec.tp, self.requires.tp_sizes),
        ):
            if allowed and value not in allowed:
                names = ", ".join(str(item) for item in allowed)
                reasons.append(f"needs {what} {names}, not {value}")
        limit = self.requires.max_rows
        if limit is not None and spec.rows > limit:
            reasons.append(f"runs at most {limit} rows, not {spec.rows}")
        return reasons
