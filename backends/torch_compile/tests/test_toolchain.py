from pathlib import Path

import pytest

from layerscope_torch_compile import toolchain

CXX = "needs a C++ compiler: apt install g++, or set CXX"
CC = "needs a C compiler: apt install gcc, or set CC"
TRITON = "needs triton: pip install triton"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, empty, with no compiler named elsewhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def install(folder: Path, name: str) -> None:
    """Put a program into `folder`."""
    program = folder / name
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)


def test_a_cpu_needs_a_cpp_compiler(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is g++, or what CXX names, as the compiler itself looks it up."""
    assert toolchain.missing("cpu") == [CXX]
    install(programs, "g++")
    assert toolchain.missing("cpu") == []
    monkeypatch.setenv("CXX", "other++")
    assert toolchain.missing("cpu") == [CXX]
    install(programs, "other++")
    assert toolchain.missing("cpu") == []


def test_a_gpu_needs_triton_and_a_c_compiler(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are told at once; a C compiler is gcc, clang, or what CC names."""
    monkeypatch.setattr(toolchain, "find_spec", lambda _: None)
    assert toolchain.missing("cuda") == [TRITON, CC]
    install(programs, "clang")
    assert toolchain.missing("cuda") == [TRITON]
    monkeypatch.setattr(toolchain, "find_spec", lambda _: object())
    assert toolchain.missing("cuda") == []
    monkeypatch.setenv("CC", "othercc")
    assert toolchain.missing("cuda") == [CC]
