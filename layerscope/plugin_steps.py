"""What a backend has built, ready to run: the steps of the contract in `plugin`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from layerscope.regions import Region


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

    Its kernels are counted as ``other``, and every report says why. It runs all regions
    of the layer, so none may be left to the fallback.
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


@runtime_checkable
class Stamping(Protocol):
    """A step whose kernels note when each of their blocks works."""

    def read_stamps(self) -> Mapping[str, Tensor]:
        """What kernels noted in the last pass that ran, by role; clears it.

        Called while the device is idle. Kernels that note nothing are left out.

        Returns:
            int64 [blocks, 4] on the CPU, in ns of a clock that all of the device's
            processors share: when a block began, when its first wait for the kernel
            before it was over, when it let the kernel after it start, and when it
            ended; 0 of what it did not do, as a block that left at once.
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
