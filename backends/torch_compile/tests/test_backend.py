import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backends.torch_compile.tests.small import DENSE, MOE, context_of, problem_of, small
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError
from layerscope.layers.spec import SIGNATURES, LayerSpec
from layerscope_torch_compile import BACKEND, layer, toolchain
from layerscope_torch_compile.feed_forward import MlpTensors

CPU = DeviceFacts(type="cpu", name="a CPU")
RANKS = (
    "has no communication between the 2 ranks; measure one rank's slice with "
    "--shard-shaped"
)
SOURCES = Path(layer.__file__).parent
ALLOWED = (
    "layerscope.errors",
    "layerscope.layers",
    "layerscope.plugin",
    "layerscope.regions",
    "layerscope_torch_compile",
)


def test_it_covers_every_region() -> None:
    """There is nothing to fall back from, in any family."""
    assert BACKEND.covers == {
        family: tuple(signature.region for signature in signatures)
        for family, signatures in SIGNATURES.items()
    }


def test_all_reasons_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ranks and a missing compiler are told together, before anything is made."""
    monkeypatch.setattr(toolchain, "which", lambda _: None)
    assert BACKEND.refusals(small(MOE, tp=2), CPU) == [
        RANKS,
        "needs a C++ compiler: apt install g++, or set CXX",
    ]


@pytest.mark.parametrize(
    "spec", [small(MOE), small(DENSE, tp=2, shard_shaped=True)], ids=["whole", "slice"]
)
def test_what_fits_has_no_reasons(
    spec: LayerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a compiler there, whole layers and slices of one are accepted."""
    monkeypatch.setattr(toolchain, "which", lambda name: f"/usr/bin/{name}")
    assert BACKEND.refusals(spec, CPU) == []


def test_real_ranks_are_not_built() -> None:
    """It does not leave out communication that was asked for."""
    with pytest.raises(BackendError) as caught:
        BACKEND.build(context_of(problem_of(small(MOE, tp=2))))
    assert str(caught.value) == f"torch_compile {RANKS}"


@pytest.mark.usefixtures("_compiler")
@pytest.mark.parametrize(
    ("switch", "what"), [("off", "mlp"), ("on", "the whole layer")]
)
def test_a_region_with_a_graph_break_is_refused(
    switch: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No arm is measured that quietly runs in pieces; the region is named."""

    def breaks(tensors: MlpTensors) -> None:
        tensors.out.copy_(tensors.residual)
        torch._dynamo.graph_break()

    monkeypatch.setattr(layer, "mlp", breaks)
    with pytest.raises(
        BackendError, match=rf"^torch_compile: {what} is not one graph: "
    ):
        BACKEND.build(context_of(problem_of(small(DENSE)), whole_layer=switch))


def test_listing_and_checking_load_no_compiler() -> None:
    """Importing the backend and asking for its reasons stays as fast as torch."""
    code = (
        "import sys\n"
        "from layerscope.environment import DeviceFacts\n"
        "from layerscope.layers.presets import preset\n"
        "from layerscope.layers.spec import LayerSpec\n"
        "from layerscope_torch_compile import BACKEND\n"
        "for type in ('cpu', 'cuda'):\n"
        "    device = DeviceFacts(type=type, name='a device')\n"
        "    BACKEND.refusals(LayerSpec(model=preset('tiny-moe')), device)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert {"torch", "layerscope_torch_compile.draft"} <= loaded
    assert loaded.isdisjoint({"torch._inductor", "torch._dynamo", "triton"})


def test_it_imports_only_what_backends_may() -> None:
    """Of layerscope: the contract, the layers, the regions and the errors."""
    imported = {
        (path.name, name)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imports(node)
        if name.startswith("layerscope")
    }
    assert imported
    assert {
        (path, name)
        for path, name in imported
        if not any(f"{name}.".startswith(f"{allowed}.") for allowed in ALLOWED)
    } == set()


def imports(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
