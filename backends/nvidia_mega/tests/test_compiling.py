from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda extra is not installed")

import torch

import layerscope_nvidia_mega
from backends.nvidia_mega.tests.emulation import KERNELS
from backends.standard.tests.bench import DENSE, MOE, Bench, small
from backends.standard.tests.compiled import check_compiles, kernels_of
from backends.standard.tests.emulation import KERNELS as STANDARD
from layerscope.layers.draft import DraftOptions, make_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import Waits
from layerscope_nvidia_mega.draft import BuiltDraft, Room
from layerscope_nvidia_mega.layer import make_layer
from layerscope_nvidia_mega.norm_product import PACKAGE
from layerscope_nvidia_mega.switches import OFF, Mechanisms
from layerscope_standard.compiling import ARCHITECTURES
from layerscope_standard.kernels import Kernel
from layerscope_standard.workshop import Workshop

H200 = Room(processors=132, shared_bytes=227 << 10)
TYPES = (DType.BFLOAT16, DType.FLOAT8_E4M3)


def layer_kernels(spec: LayerSpec) -> list[Kernel]:
    """With all mechanisms, and with each left out."""
    problem = Bench(torch.device("cpu"), _none).problem(spec)

    def of(switches: dict[str, str]) -> list[Kernel]:
        chosen = Mechanisms.of(switches)
        return kernels_of(lambda workshop: make_layer(problem, workshop, chosen))

    names = [each.name for each in fields(Mechanisms)]
    return [*of({}), *chain.from_iterable(of({name: OFF}) for name in names)]


def draft_kernels(weights: DType, vocabulary: int) -> list[Kernel]:
    """Of a slice of the vocabulary."""
    spec = DraftSpec(
        model="small",
        vocab_size=vocabulary,
        rank=64,
        tokens=1,
        weight_dtype=weights,
    )
    problem = make_draft(spec, DraftOptions(passes=1, steps=1))
    waits = Waits.on(problem.device)
    return kernels_of(lambda workshop: BuiltDraft(problem, workshop, waits, H200))


def _none() -> Workshop:
    raise AssertionError


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    """All that layers and drafts of both types launch, each once.

    Drafts of slices that stay on the chip, and of some that do not.
    """
    found: list[Kernel] = []
    for weights in TYPES:
        for model in (MOE, DENSE):
            found += layer_kernels(small(model, weight_dtype=weights, context=33))
        for vocabulary in (2_000, 400_000):
            found += draft_kernels(weights, vocabulary)
    return [*dict.fromkeys(found)]


def test_every_file_is_launched(kernels: list[Kernel]) -> None:
    """What compiles here is all there is."""
    code = Path(layerscope_nvidia_mega.__file__).parent / "code"
    own = {kernel.file for kernel in kernels if kernel.package == PACKAGE}
    assert own == KERNELS.keys() == {path.stem for path in code.glob("*.cu")}
    names = {kernel.name for kernel in kernels if kernel.package == PACKAGE}
    assert names == {name for each in KERNELS.values() for name in each}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles(kernels: list[Kernel], architecture: str) -> None:
    """Those of this package for every architecture that it names, without a GPU."""
    own = [kernel for kernel in kernels if kernel.package == PACKAGE]
    assert own
    for kernel in own:
        check_compiles(kernel, architecture, KERNELS[kernel.file])


def test_standard_kernels_compile_with_their_turns(kernels: list[Kernel]) -> None:
    """As the mechanisms let them start."""
    others = [kernel for kernel in kernels if kernel.package != PACKAGE]
    assert any(("LOADS_EARLY", 1) in kernel.defines for kernel in others)
    for kernel in others:
        check_compiles(kernel, "sm_90", STANDARD[kernel.file])


def test_kernels_compile_with_stamps(kernels: list[Kernel]) -> None:
    """All of a layer; a draft is one kernel, which has none before it to wait for."""
    for kernel in kernels:
        if not kernel.file.startswith("draft"):
            stamped = replace(kernel, stamps=("role", 1000))
            check_compiles(stamped, "sm_90", (kernel.name, "stamps"))
