"""Triton's kernels: compiled for GPUs that are not there, and interpreted."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")
compiler = pytest.importorskip("triton.compiler")
targets = pytest.importorskip("triton.backends.compiler")
triton_kernels = import_module("layerscope_standard.triton_kernels")

INTERPRETED: Final = Path(__file__).parent / "test_triton_interpreted.py"
OLDEST: Final = (3, 7)
"""Whose interpreter takes the numpy of today."""

POINTERS: Final = {
    "scales": "*fp32",
    "parts": "*fp32",
    "each": "*fp32",
    "row_weights": "*fp32",
    "table": "*i32",
}
"""Types of what is not bfloat16."""

NUMBERS: Final = (
    *("row_count", "outputs", "inputs", "splits", "size", "width", "top_k"),
)
MULTIPLES_OF_16: Final = ("outputs", "inputs", "size", "width")
TILES: Final[dict[str, int | bool]] = {
    "ROWS": 8,
    "OUTPUTS": 32,
    "K": 128,
    "EMULATED": False,
}


def ptx_of(name: str, constants: dict[str, int | bool], arch: int) -> str:
    """What a kernel is compiled to; also to machine code, which Triton checks."""
    kernel = getattr(triton_kernels, name)
    constants = {**constants, "PDL": True}
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for index, each in enumerate(kernel.arg_names):
        kind = POINTERS.get(each, "*bf16")
        if each == "weights" and constants.get("QUANT"):
            kind = "*fp8e4nv"
        if each in NUMBERS:
            kind = "i32"
        if each == "eps":
            kind = "fp32"
        if each in constants:
            kind = "constexpr"
        signature[each] = kind
        if kind.startswith("*") or each in MULTIPLES_OF_16:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = compiler.ASTSource(kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=targets.GPUTarget("cuda", arch, 32))
    assert compiled.asm["cubin"]
    text: str = compiled.asm["ptx"]
    return text


@pytest.mark.parametrize("arch", [90, 100, 103, 120])
@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("product_kernel", {**TILES, "QUANT": 0}),
        ("product_kernel", {**TILES, "QUANT": 128}),
        ("norm_kernel", {"SIZE": 2048, "ADDS": False}),
        ("norm_kernel", {"SIZE": 2048, "ADDS": True}),
        ("gate_up_kernel", {**TILES, "QUANT": 0}),
        ("gate_up_kernel", {**TILES, "QUANT": 128}),
        ("down_kernel", {**TILES, "QUANT": 0}),
        ("down_kernel", {**TILES, "QUANT": 128}),
        ("sum_kernel", {"OUTPUTS": 256}),
    ],
    ids=lambda each: each if isinstance(each, str) else each.get("QUANT", ""),
)
def test_kernels_wait_before_they_read(
    name: str, constants: dict[str, int | bool], arch: int
) -> None:
    """They trigger after all they write; and products are made by tensor cores."""
    ptx = ptx_of(name, constants, arch)
    (wait,) = (found.start() for found in re.finditer(r"griddepcontrol\.wait", ptx))
    reads = re.finditer(r"ld\.global|cp\.async\.c[ag]", ptx)
    assert wait < min(found.start() for found in reads)
    (trigger,) = (
        found.start() for found in re.finditer(r"griddepcontrol\.launch", ptx)
    )
    writes = re.finditer(r"st\.global", ptx)
    assert max(found.start() for found in writes) < trigger
    assert ("mma" in ptx) == ("K" in constants)


def test_the_interpreter_finds_them_right() -> None:
    """All tests of test_triton_interpreted.py pass where the interpreter runs them."""
    if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST:
        pytest.skip(f"the interpreter of triton {triton.__version__} is too old")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(INTERPRETED)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "skipped" not in done.stdout
