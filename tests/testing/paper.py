"""A backend on paper: the reference, and what a test makes of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs
from torch import Tensor

from layerscope.layers.problem import Problem
from layerscope.layers.reference import BACKEND, ReferenceBuilt, ReferenceStep
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import (
    BackendSpec,
    BuildContext,
    Built,
    Step,
    StepShape,
    WholeStep,
)
from layerscope.regions import Region
from layerscope.testing import check_backend
from tests import handmade

MODEL = structs.replace(handmade.model(), vocab_size=100)
SPEC = LayerSpec(
    model=MODEL, dtype=DType.FLOAT32, weight_dtype=DType.FLOAT32, context=17
)
WHERE = "paper on paper-moe, float32 with float32 weights, 1 x 6 rows, context 17: "
ALL = (Region.ATTENTION, Region.O_PROJ_ALL_REDUCE, Region.MOE)

Tamper = Callable[[Problem, Region, int], None]


@dataclass
class PaperStep:
    """The reference's step, and what a test does after every region."""

    problem: Problem
    inner: ReferenceStep
    tamper: Tamper
    skips: tuple[Region, ...] = ()

    def run(self, region: Region, pass_index: int) -> None:
        """Run the region as the reference does, then tamper."""
        if region not in self.skips:
            self.inner.run(region, pass_index)
        self.tamper(self.problem, region, pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """The reference's experts."""
        return self.inner.expert_ids(pass_index)

    def touched_bytes(self, region: Region) -> int | None:  # noqa: ARG002
        """Nobody counts."""
        return None


@dataclass
class PaperBuilt:
    """Plans its step for any shape that `takes` agrees to."""

    step: Step | WholeStep
    takes: Callable[[StepShape], bool]
    device_bytes: int = 0

    def plan(self, shape: StepShape) -> Step | WholeStep | None:
        """The step, or None."""
        return self.step if self.takes(shape) else None


def is_own(shape: StepShape) -> bool:
    """Whether the problem of `SPEC` has buffers for `shape`."""
    return shape == StepShape(1, 6, 17)


def nothing(problem: Problem, region: Region, index: int) -> None:
    """Tamper with nothing."""


def paper(
    tamper: Tamper = nothing,
    *,
    takes: Callable[[StepShape], bool] = is_own,
    skips: tuple[Region, ...] = (),
    **fields: Any,  # noqa: ANN401 (fields of the spec)
) -> BackendSpec:
    """The reference under another name, but for what a test changes."""

    def build(context: BuildContext) -> Built:
        step = ReferenceBuilt(context.problem).plan(StepShape(1, 6, 17))
        assert step is not None
        return PaperBuilt(PaperStep(context.problem, step, tamper, skips), takes)

    values: dict[str, Any] = {
        "name": "paper",
        "summary": "a backend on paper",
        "build": build,
        "build_draft": None,
        "skippable": (),
    }
    return replace(BACKEND, **(values | fields))


def failures(backend: BackendSpec, spec: LayerSpec = SPEC) -> list[str]:
    """What the suite finds wrong with `backend`, without the place of its arm."""
    with pytest.raises(AssertionError) as raised:
        check_backend(backend, specs=[spec])
    head, *lines = str(raised.value).splitlines()
    assert head == "paper does not keep the contract:"
    return [line.removeprefix("- ").removeprefix(WHERE) for line in lines]
