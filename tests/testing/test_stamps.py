from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from layerscope.layers.reference import ReferenceBuilt
from layerscope.plugin import BackendSpec, BuildContext, Built, StepShape
from layerscope.testing import check_backend
from tests.testing.paper import (
    SPEC,
    PaperBuilt,
    PaperStep,
    failures,
    is_own,
    nothing,
    paper,
)

STAMPED = (
    "paper (stamps) on paper-moe, float32 with float32 weights, 1 x 6 rows, "
    "context 17: "
)
RIGHT = torch.tensor([[10, 20, 0, 40], [15, 20, 30, 35], [0, 0, 0, 0]])


class NotingStep(PaperStep):
    """The reference's step, which says that its kernels noted something."""

    noted: Mapping[str, Tensor]
    clears = True

    def read_stamps(self) -> Mapping[str, Tensor]:
        """What was noted, once."""
        found = self.noted
        if self.clears:
            self.noted = {role: torch.zeros_like(each) for role, each in found.items()}
        return found


def noting(
    noted: Mapping[str, Tensor], *, clears: bool = True, scale: float = 1.0
) -> BackendSpec:
    """A backend with stamps, whose stamped outputs are `scale` times the others."""

    def build(context: BuildContext) -> Built:
        inner = ReferenceBuilt(context.problem).plan(StepShape(1, 6, 17))
        assert inner is not None
        if not context.stamps:
            return PaperBuilt(PaperStep(context.problem, inner, nothing), is_own)
        step = NotingStep(
            context.problem,
            inner,
            lambda problem, _, index: problem.buffers[index].out.mul_(scale),  # type: ignore[arg-type]
        )
        step.noted, step.clears = noted, clears
        return PaperBuilt(step, is_own)

    return paper(build=build, stamps=True)


def wrong(backend: BackendSpec) -> list[str]:
    """What the suite finds wrong, without the place of the stamped arm."""
    return [line.removeprefix(STAMPED) for line in failures(backend)]


def test_a_backend_with_stamps_is_checked_with_them_too() -> None:
    """A block may leave out what it did not do, or all."""
    found = check_backend(noting({"qkv": RIGHT}), specs=[SPEC])
    assert [where.partition(" on ")[0] for where in found.checked] == [
        "paper",
        "paper (stamps)",
    ]


@pytest.mark.parametrize(
    ("noted", "line"),
    [
        ({}, "it says that it has stamps, and no kernel has any"),
        (
            {"qkv": torch.zeros(2, 4, dtype=torch.int64)},
            "stamps of qkv say that no block ran",
        ),
        (
            {"qkv": RIGHT.float()},
            (
                "stamps of qkv are torch.float32 [3, 4] on cpu, not int64 [blocks, 4] "
                "on the CPU"
            ),
        ),
        (
            {"qkv": RIGHT[:, :3]},
            (
                "stamps of qkv are torch.int64 [3, 3] on cpu, not int64 [blocks, 4] "
                "on the CPU"
            ),
        ),
        (
            {"qkv": torch.tensor([[10, 9, 0, 40]])},
            "stamps of qkv are not within the begin and the end of their block",
        ),
        (
            {"qkv": torch.tensor([[10, 20, 50, 40]])},
            "stamps of qkv are not within the begin and the end of their block",
        ),
    ],
)
def test_what_cannot_be_times_is_told(noted: Mapping[str, Tensor], line: str) -> None:
    """Each in a line that names the kernel."""
    assert wrong(noting(noted)) == [line]


def test_what_was_read_must_be_gone() -> None:
    """Or what a later pass does not write would be taken for its own."""
    assert wrong(noting({"qkv": RIGHT}, clears=False)) == [
        "read_stamps does not clear what it has read"
    ]


def test_stamps_must_not_change_what_is_computed() -> None:
    """Not by a bit."""
    assert wrong(noting({"qkv": RIGHT}, scale=1 + 1e-6)) == [
        "its results are not bit for bit those at the default"
    ]


def test_a_backend_that_says_so_must_have_some() -> None:
    """Its step is the plain one."""
    assert wrong(paper(stamps=True)) == [
        "it says that it has stamps, and its step has no read_stamps"
    ]
