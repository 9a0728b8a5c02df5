"""A layer that is compiled region by region, or as a whole."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from layerscope.layers.problem import Problem
from layerscope.plugin import StepShape
from layerscope.regions import Region
from layerscope_torch_compile.compiling import compiled
from layerscope_torch_compile.layer import Layer, make_layer

WHY_WHOLE: Final = "compiled as one graph, kernels serve several regions"


class RegionStep:
    """Every region a graph of its own; see `plugin.Step`."""

    def __init__(self, layer: Layer) -> None:
        """Compile the regions of `layer`, and run each once on every pass.

        Raises:
            BackendError: a region cannot be compiled, or not as one graph.
        """
        self._layer = layer
        self._runs = {
            region: compiled(region, function, [each[region] for each in layer.passes])
            for region, function in layer.functions.items()
        }

    def run(self, region: Region, pass_index: int) -> None:
        """Enqueue `region` of pass `pass_index`."""
        with torch.no_grad():
            self._runs[region](self._layer.passes[pass_index][region])

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """Experts chosen in the last run of the pass, int64 [rows, top_k], best first.

        A copy made now, on the current stream.
        """
        return _expert_ids(self._layer, pass_index)

    def touched_bytes(self, _: Region) -> int | None:
        """None: which operands a kernel reads anew, only the compiler knows."""
        return None


class WholeLayerStep:
    """All regions one graph; see `plugin.WholeStep`."""

    why_whole = WHY_WHOLE

    def __init__(self, layer: Layer) -> None:
        """Compile `layer`, and run it once on every pass.

        Raises:
            BackendError: it cannot be compiled, or not as one graph.
        """
        self._layer = layer
        self._calls = [tuple(each.values()) for each in layer.passes]
        functions = tuple(layer.functions.values())
        self._run = compiled("the whole layer", _in_order(functions), self._calls)

    def run_layer(self, pass_index: int) -> None:
        """Enqueue all regions of pass `pass_index`."""
        with torch.no_grad():
            self._run(self._calls[pass_index])

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """As `RegionStep.expert_ids`."""
        return _expert_ids(self._layer, pass_index)

    def layer_bytes(self) -> int | None:
        """None, as `RegionStep.touched_bytes`."""
        return None


def _in_order(
    functions: tuple[Callable[[Any], None], ...],
) -> Callable[[tuple[Any, ...]], None]:
    """One function that runs each of `functions` on its part of one tuple."""

    def run(parts: tuple[Any, ...]) -> None:
        for function, part in zip(functions, parts, strict=True):
            function(part)

    return run


def _expert_ids(layer: Layer, pass_index: int) -> Tensor | None:
    columns = layer.tables.ids[pass_index]
    return torch.stack(columns, 1) if columns else None


class BuiltLayer:
    """A layer compiled for one problem; see `plugin.Built`."""

    def __init__(self, problem: Problem, *, whole: bool) -> None:
        """Compile the layer of `problem`, as one graph if `whole`.

        Raises:
            BackendError: it cannot be compiled, or not without a graph break.
        """
        layer = make_layer(problem)
        self._spec = problem.spec
        self._step = WholeLayerStep(layer) if whole else RegionStep(layer)
        self.device_bytes = layer.tables.device_bytes

    def plan(self, shape: StepShape) -> RegionStep | WholeLayerStep | None:
        """The step if `shape` is the problem's own, else None."""
        spec = self._spec
        own = StepShape(spec.requests, spec.tokens_per_request, spec.context)
        return self._step if shape == own else None
