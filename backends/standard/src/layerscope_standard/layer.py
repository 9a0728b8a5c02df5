"""A layer as chains of prepared kernels, a chain for each region and pass."""

from torch import Tensor

from layerscope.layers.problem import Problem
from layerscope.plugin import StepShape
from layerscope.regions import Region, role
from layerscope_standard.attention import Attention, make_attention
from layerscope_standard.experts import Experts, make_experts
from layerscope_standard.kernels import Operation
from layerscope_standard.workshop import Workshop


class LayerStep:
    """The step of one problem; see `plugin.Step`."""

    def __init__(
        self, problem: Problem, attention: Attention, experts: Experts
    ) -> None:
        """Prepare all launches.

        Raises:
            BackendError: a kernel cannot be compiled or loaded.
        """
        last = Region.MOE if problem.spec.model.experts else Region.MLP
        self.operations: dict[Region, list[list[Operation]]] = {
            region: [make(index) for index in range(problem.passes)]
            for region, make in (
                (Region.ATTENTION, attention.operations),
                (Region.O_PROJ_ALL_REDUCE, attention.o_proj),
                (last, experts.operations),
            )
        }
        """By region and pass, in the order of execution."""

        self._routing = experts.routing

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


class BuiltLayer:
    """A layer built for one problem; see `plugin.Built`."""

    def __init__(self, problem: Problem, workshop: Workshop, step: LayerStep) -> None:
        """What runs `problem`, made with `workshop`."""
        self._spec = problem.spec
        self.step = step
        self.workshop = workshop

    @property
    def device_bytes(self) -> int:
        """Of scratch and tables."""
        return self.workshop.device_bytes

    def plan(self, shape: StepShape) -> LayerStep | None:
        """The step if `shape` is the problem's own, else None."""
        spec = self._spec
        own = StepShape(spec.requests, spec.tokens_per_request, spec.context)
        return self.step if shape == own else None


def make_layer(problem: Problem, workshop: Workshop) -> BuiltLayer:
    """The standard chain for `problem`.

    Raises:
        BackendError: a kernel cannot be compiled or loaded.
    """
    attention = make_attention(problem, workshop)
    experts = make_experts(problem, workshop)
    return BuiltLayer(problem, workshop, LayerStep(problem, attention, experts))
