"""A layer as chains of prepared kernels, a chain for each region and pass."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import Tensor

from layerscope.layers.problem import Problem
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import StepShape
from layerscope.regions import Region, role
from layerscope_standard import limits
from layerscope_standard.attention import make_attention
from layerscope_standard.chosen import chosen_attention, chosen_experts
from layerscope_standard.experts import Routing, make_experts
from layerscope_standard.kernels import Operation
from layerscope_standard.workshop import Workshop

Chain: TypeAlias = Callable[[int], list[Operation]]
"""The kernels of a region, in the order of execution, of the pass with a number."""


class LayerStep:
    """The step of one problem; see `plugin.Step`."""

    def __init__(
        self,
        problem: Problem,
        chains: Mapping[Region, Chain],
        routing: Routing | None,
        workshop: Workshop,
    ) -> None:
        """Prepare all launches.

        Args:
            problem: whose passes are run.
            chains: of every region.
            routing: what the experts are chosen by, where there are any.
            workshop: with which the chains are made.

        Raises:
            BackendError: a kernel cannot be compiled or loaded.
        """
        left = limits.declines(problem.spec)
        self.operations: dict[Region, list[list[Operation]]] = {
            region: [chain(index) for index in range(problem.passes)]
            for region, chain in chains.items()
            if region not in left
        }
        """By region and pass, in the order of execution; of those that it runs."""

        self._routing = routing
        self._workshop = workshop

    def run(self, region: Region, pass_index: int) -> None:
        """Enqueue the kernels of `region` of pass `pass_index`."""
        for operation in self.operations[region][pass_index]:
            with role(operation.role):
                operation.enqueue()

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """Experts chosen in the last run of the pass, int32 [rows, top_k]."""
        return None if self._routing is None else self._routing.ids[pass_index]

    def touched_bytes(self, _: Region) -> int | None:
        """None: how often what lies in the cache is read again is not counted."""
        return None

    def read_stamps(self) -> dict[str, Tensor]:
        """When blocks of kernels worked in the last pass; see `plugin.Stamping`."""
        return self._workshop.read_stamps()


class BuiltLayer:
    """A layer built for one problem; see `plugin.Built`."""

    def __init__(self, problem: Problem, workshop: Workshop, step: LayerStep) -> None:
        """What runs `problem`, made with `workshop`."""
        self._spec = problem.spec
        self.step = step
        self.workshop = workshop

    @property
    def device_bytes(self) -> int:
        """Of scratch, tables, and weights that were packed for it."""
        return self.workshop.device_bytes

    def plan(self, shape: StepShape) -> LayerStep | None:
        """The step if `shape` is the problem's own, else None."""
        spec = self._spec
        own = StepShape(spec.requests, spec.tokens_per_request, spec.context)
        return self.step if shape == own else None


def make_layer(problem: Problem, workshop: Workshop) -> BuiltLayer:
    """The standard chain for `problem`.

    Raises:
        BackendError: a kernel cannot be compiled or loaded; or one was chosen whose
            library is not installed.
    """
    attention = chosen_attention(make_attention(problem, workshop))
    experts = chosen_experts(make_experts(problem, workshop))
    chains: dict[Region, Chain] = {
        Region.ATTENTION: attention.operations,
        Region.O_PROJ_ALL_REDUCE: attention.o_proj,
        last_region(problem.spec): experts.operations,
    }
    step = LayerStep(problem, chains, experts.routing, workshop)
    return BuiltLayer(problem, workshop, step)


def last_region(spec: LayerSpec) -> Region:
    """Where the experts are, or the MLP that stands for one."""
    return Region.MOE if spec.model.experts else Region.MLP
