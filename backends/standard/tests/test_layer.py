from pathlib import Path

import pytest

from backends.standard.tests.bench import DENSE, MOE, Bench, small
from backends.standard.tests.emulation import EmulatedLauncher
from layerscope.plugin import StepShape
from layerscope.regions import Mark, Region, observing
from layerscope_standard.backend import ROLES
from layerscope_standard.layer import make_layer


class Roles:
    """Notes the roles that are opened."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def opened(self, mark: Mark) -> None:
        """Note it, if it is one."""
        if mark.kind == "role":
            self.names.append(mark.name)

    def closed(self, mark: Mark) -> None:
        """Nothing to note."""


def test_every_kernel_has_its_role(bench: Bench) -> None:
    """In the order of execution, which is that of the roles that are told."""
    problem = bench.problem(small(MOE, draft_tokens=0, context=20))
    built, roles = make_layer(problem, bench.workshop()), Roles()
    with observing(roles):
        for region in problem.spec.regions:
            built.step.run(region, 1)
    assert roles.names == list(ROLES)
    launcher = built.workshop.launcher
    assert isinstance(launcher, EmulatedLauncher)
    assert [launch.kernel.name for launch in launcher.launched] == [
        *("norm_rows", "product_bf16", "rope_kv_write", "attention", "combine"),
        *("product_bf16", "add_norm_rows", "product_bf16", "top_k", "align"),
        *("gate_up_bf16", "down_bf16"),
    ]


def test_a_dense_layer_is_not_routed(bench: Bench) -> None:
    """Its MLP is two kernels, and there are no experts to tell."""
    problem = bench.problem(small(DENSE, draft_tokens=0, context=20))
    step = make_layer(problem, bench.workshop()).step
    (first, second), _ = step.operations[Region.MLP]
    assert (first.role, second.role) == ("gate_up", "down+sum")
    assert step.expert_ids(0) is None


def test_memory_is_counted(bench: Bench) -> None:
    """All that the layer allocated beyond the problem's own, and passes share it."""
    spec = small(DENSE, draft_tokens=0, context=20)
    built = make_layer(bench.problem(spec), bench.workshop())
    hidden, heads, dim, width = 208, 6, 64, 272
    handed = 2 * (hidden + heads * dim + width)  # normed, queries, active
    products = 4 * (10 * dim + hidden)  # one part each: inputs are short
    mixed = 4 * heads * (dim + 2)  # one split
    constants = 4 * dim + 2 * 8 + 4 * (16 + 1)  # rope, slots, the table and its weight
    assert built.device_bytes == handed + products + mixed + constants


@pytest.mark.parametrize("change", [(1, 0, 0), (0, 1, 0), (0, 0, 16)])
def test_other_steps_are_declined(
    bench: Bench, change: tuple[int, int, int], libraries: Path
) -> None:
    """There are buffers for one step only."""
    assert libraries.is_dir()
    problem = bench.problem(small(DENSE, draft_tokens=0, context=20))
    built = make_layer(problem, bench.workshop())
    assert built.plan(StepShape(1, 1, 20)) is built.step
    requests, tokens, context = change
    assert built.plan(StepShape(1 + requests, 1 + tokens, 20 + context)) is None
