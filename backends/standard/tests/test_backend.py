import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from backends.standard.tests.bench import DENSE, MOE, Bench, small
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError
from layerscope.layers.spec import SIGNATURES, DType, LayerSpec
from layerscope.plugin import BackendSpec, BuildContext, Waits
from layerscope.registry import dispatch
from layerscope.study import Arm
from layerscope.testing import check_backend
from layerscope_standard import BACKEND, limits
from layerscope_standard.backend import ROLES
from layerscope_standard.draft import BuiltDraft
from layerscope_standard.layer import make_layer

H200 = DeviceFacts(type="cuda", name="an H200", architecture="sm_90", processors=132)
RANKS = (
    "has no communication between the 2 ranks; measure one rank's slice with "
    "--shard-shaped"
)
SOURCES = Path(limits.__file__).parent
ALLOWED = (
    "layerscope.errors",
    "layerscope.layers",
    "layerscope.plugin",
    "layerscope.regions",
    "layerscope_standard",
)


def emulated(bench: Bench) -> BackendSpec:
    """The backend on a CPU, without its switch."""
    return replace(
        BACKEND,
        name="emulated",  # no entry point is of that name
        requires=replace(BACKEND.requires, device_types=(), architectures=()),
        check=None,
        switches=(),
        build=lambda context: make_layer(
            context.problem, bench.workshop().stamping(is_wanted=context.stamps)
        ),
        build_draft=lambda context: BuiltDraft(context.problem, bench.workshop()),
    )


def test_it_covers_every_region() -> None:
    """There is nothing to fall back from, in any family."""
    assert BACKEND.covers == {
        family: tuple(signature.region for signature in signatures)
        for family, signatures in SIGNATURES.items()
    }


def test_its_own_kernels_may_become_programmatic() -> None:
    """All of them wait for their predecessor by themselves."""
    assert set(ROLES) <= set(BACKEND.pdl_safe)
    assert {"token_1", "token_5"} <= set(BACKEND.pdl_safe)


def test_all_reasons_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of device, step, ranks, packages and sizes, before anything is made."""
    monkeypatch.setattr(limits, "find_spec", lambda _: None)
    spec = small(MOE, tp=2, dtype=DType.FLOAT32, requests=2)
    cpu = DeviceFacts(type="cpu", name="a CPU")
    assert BACKEND.refusals(spec, cpu) == [
        "needs device cuda, not cpu",
        "needs dtype bfloat16, not float32",
        RANKS,
        "needs cuda-bindings: pip install 'layerscope[cuda]'",
        "takes a width that is a multiple of 16, not 72",
    ]


@pytest.mark.parametrize(
    "spec",
    [small(MOE), small(DENSE, tp=2, shard_shaped=True, weight_dtype=DType.FLOAT8_E4M3)],
    ids=["whole", "slice"],
)
def test_what_fits_has_no_reasons(
    spec: LayerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole layers and slices of one, in both types of weights."""
    spec = spec if spec.tp == 1 else small(MOE, tp=1, weight_dtype=spec.weight_dtype)
    monkeypatch.setattr(limits, "find_spec", lambda name: name)
    assert BACKEND.refusals(spec, H200) == []


def test_an_attention_with_too_many_rows_falls_back(bench: Bench) -> None:
    """The rest of the layer is run all the same, on what the fallback hands it."""
    model = structs.replace(MOE, query_heads=32, kv_heads=1)
    spec = small(model, draft_tokens=4, context=20)
    backend = emulated(bench)
    found = dispatch(Arm(backend="emulated"), bench.problem(spec), backend)
    assert [(each.region, each.backend) for each in found.decisions] == [
        ("attention", "reference"),
        ("o_proj_all_reduce", "emulated"),
        ("moe", "emulated"),
    ]
    assert check_backend(backend, specs=[spec]).left_out == []


def test_nothing_is_built_for_too_many_rows(bench: Bench) -> None:
    """The fallback runs it all, and every decision says why; nothing is allocated."""
    spec = small(MOE, draft_tokens=63, context=20)
    found = dispatch(Arm(backend="emulated"), bench.problem(spec), emulated(bench))
    assert {(each.backend, each.reason) for each in found.decisions} == {
        ("reference", "emulated runs at most 8 rows, not 64")
    }


def test_real_ranks_are_not_built(bench: Bench) -> None:
    """It does not leave out communication that was asked for."""
    problem = bench.problem(small(MOE, tp=2))
    context = BuildContext(problem=problem, waits=Waits.on(problem.device))
    with pytest.raises(BackendError) as caught:
        BACKEND.build(context)
    assert str(caught.value) == f"standard {RANKS}"


@pytest.mark.parametrize(
    "spec",
    [
        small(MOE, draft_tokens=2, context=33, weight_dtype=DType.FLOAT8_E4M3),
        small(DENSE, draft_tokens=0, context=33),
    ],
    ids=["moe-fp8", "dense"],
)
def test_the_emulated_backend_keeps_the_contract(bench: Bench, spec: LayerSpec) -> None:
    """The whole chain of either family, on a CPU."""
    check_backend(emulated(bench), specs=[spec])


def test_listing_and_checking_load_no_compiler() -> None:
    """Importing the backend and asking for its reasons stays as fast as torch."""
    code = (
        "import sys\n"
        "from layerscope.environment import DeviceFacts\n"
        "from layerscope.layers.presets import preset\n"
        "from layerscope.layers.spec import LayerSpec\n"
        "from layerscope_standard import BACKEND\n"
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
    assert {"torch", "layerscope_standard.draft"} <= loaded
    assert loaded.isdisjoint({"cuda.bindings.nvrtc", "triton"})


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
