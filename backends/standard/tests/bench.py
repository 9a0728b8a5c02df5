"""A device that runs kernels, emulated or real, and small problems for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.layers.weights import BlockScaled, quantise
from layerscope_standard.selection import Choice
from layerscope_standard.workshop import Workshop

MOE = msgspec.structs.replace(preset("tiny-moe"), name="small-moe", expert_size=144)
"""The width of an expert is no multiple of a block: gate and up share one."""

DENSE = ModelShape(
    name="small-dense",
    family=Family.LLAMA,
    layers=1,
    hidden_size=208,
    query_heads=6,
    kv_heads=2,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=5e5,
    mlp_size=272,
)
"""No size but that of a head is a multiple of a block or a power of two."""


def small(model: ModelShape, **changes: object) -> LayerSpec:
    """Six rows behind 150 tokens on pages of 16."""
    return msgspec.structs.replace(LayerSpec(model=model, context=150), **changes)


@dataclass(frozen=True)
class Bench:
    """Where kernels are tried."""

    device: torch.device
    workshop: Callable[[], Workshop]
    """A new one."""

    def problem(self, spec: LayerSpec) -> Problem:
        """Two passes with inputs for two steps."""
        options = ProblemOptions(passes=2, steps=2, device=str(self.device))
        return make_problem(spec, options)

    def normal(self, *shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
        """Normal values in bfloat16."""
        draw = torch.Generator().manual_seed(seed)
        values = torch.randn(*shape, generator=draw) * scale
        return values.to(device=self.device, dtype=torch.bfloat16)

    def weight(self, dtype: DType, *shape: int, seed: int = 1) -> Tensor | BlockScaled:
        """A matrix, or a stack of them, as it is stored."""
        plain = self.normal(*shape, seed=seed, scale=shape[-1] ** -0.5)
        return quantise(plain) if dtype is DType.FLOAT8_E4M3 else plain

    def wait(self) -> None:
        """Block until all that was enqueued has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def choosing(bench: Bench, choices: Mapping[str, Choice]) -> Bench:
    """The same bench, where some roles are run by other candidates."""

    def workshop() -> Workshop:
        made = bench.workshop()
        selection = made.selection
        for role, choice in choices.items():
            selection = selection.overridden(role, choice)
        return replace(made, selection=selection)

    return replace(bench, workshop=workshop)


def poison(workshop: Workshop) -> None:
    """Write what no kernel may read into all that kernels hand to each other."""
    for each in workshop.scratch:
        if each.is_floating_point():
            each.fill_(float("nan"))
        else:
            each.fill_(0x5A5A5A5A)
