import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from layerscope.doctor import compilers
from layerscope.report.diagnosis import Finding, State


def program(folder: Path, name: str, script: str) -> str:
    """An executable of Python that runs `script`."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, to be filled with programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


WORKS = "import sys; sys.argv[1] == '--version' and print('paper 1.2\\nmore')"
FAILS = """import sys
print("In file included:\\n<stdin>:1:10: fatal error: Python.h: No such file",
      file=sys.stderr)
sys.exit(1)"""


def test_a_compiler_that_works_has_its_version(path: Path) -> None:
    """g++ is taken where CXX names nothing, gcc where CC names nothing."""
    program(path, "g++", WORKS)
    program(path, "gcc", WORKS)
    assert compilers.cxx({}) == Finding("C++ compiler", State.OK, "paper 1.2")
    assert compilers.cc({}) == Finding("C compiler", State.OK, "paper 1.2")


def test_the_variables_are_followed(path: Path) -> None:
    """CXX and CC win over what else is there."""
    program(path, "g++", FAILS)
    program(path, "gcc", FAILS)
    works = program(path, "mine", WORKS)
    assert compilers.cxx({"CXX": works}).state is State.OK
    assert compilers.cc({"CC": works}).state is State.OK


def test_triton_takes_clang_where_there_is_no_gcc(path: Path) -> None:
    """As Triton itself does."""
    program(path, "clang", WORKS)
    assert compilers.cc({}).state is State.OK


def test_headers_that_are_missing_are_the_cause(path: Path) -> None:
    """A compiler without Python's headers builds nothing for torch or Triton."""
    cause = "<stdin>:1:10: fatal error: Python.h: No such file"
    program(path, "g++", FAILS)
    program(path, "gcc", FAILS)
    told = compilers.cxx({}), compilers.cc({})
    assert [found.state for found in told] == [State.MISSING] * 2
    assert told[0].found == f"g++: {cause}"
    assert told[1].found == f"{path / 'gcc'}: {cause}"
    assert told[0].fix == "apt install g++ python3-dev"
    assert told[1].fix == "apt install gcc python3-dev"


def test_a_compiler_that_says_nothing_is_told_by_its_exit(path: Path) -> None:
    """There is always a cause."""
    program(path, "g++", "import sys; sys.exit(3)")
    assert compilers.cxx({}).found == "g++: exit 3"


def test_no_compiler_at_all(path: Path) -> None:
    """Where clang++ is there, torch only has to be told so."""
    told = compilers.cxx({})
    assert (told.found, told.fix) == (
        "g++ is not installed",
        "apt install g++ python3-dev",
    )
    assert compilers.cc({}).found == "gcc is not installed"
    program(path, "clang++", WORKS)
    assert compilers.cxx({}).fix == "export CXX=clang++"


def test_a_compiler_that_cannot_be_run(path: Path) -> None:
    """A file without the right to run is told as the system tells it."""
    (path / "mine").write_text("", encoding="utf-8")
    told = compilers.cxx({"CXX": str(path / "mine")})
    assert told.state is State.MISSING
    assert "Permission denied" in told.found


def test_a_compiler_that_hangs_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A licence server that does not answer stops nobody."""
    monkeypatch.setattr(compilers, "_TIMEOUT_S", 0.2)
    hangs = program(path, "mine", "import time; time.sleep(60)")
    told = compilers.cxx({"CXX": hangs})
    assert told.state is State.MISSING
    assert "timed out" in told.found


def test_the_compiler_of_this_machine_is_really_tried() -> None:
    """What the probe says is what compiling by hand says."""
    include = f"-I{sysconfig.get_path('include')}"
    source = "#include <Python.h>\n#include <omp.h>\n"
    try:
        done = subprocess.run(
            ["g++", "-x", "c++", "-fopenmp", "-fsyntax-only", include, "-"],  # noqa: S607 (the one that torch takes)
            input=source,
            text=True,
            capture_output=True,
            check=False,
        )
        works = done.returncode == 0
    except FileNotFoundError:
        works = False
    assert (compilers.cxx({}).state is State.OK) == works


def test_triton_of_either_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for ROCm call the package differently."""
    for name in ("triton", "pytorch-triton-rocm"):
        versions = {name: "3.6.0"}
        monkeypatch.setattr(compilers, "installed", lambda n, v=versions: v.get(n, ""))
        assert compilers.triton() == Finding("Triton", State.OK, "3.6.0")
    monkeypatch.setattr(compilers, "installed", lambda _: "")
    assert compilers.triton().state is State.MISSING


def test_nvcc_is_optional(path: Path, tmp_path: Path) -> None:
    """It is found on the path or below CUDA_HOME; nothing is lost without it."""
    assert compilers.nvcc({}) == Finding(
        "nvcc", State.NOT_APPLICABLE, "not installed, and not needed by layerscope"
    )
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    script = "print('nvcc\\nrelease 13.0, V13.0.88')"
    elsewhere = program(home / "bin", "nvcc", script)
    assert compilers.nvcc({"CUDA_HOME": str(home)}) == Finding(
        "nvcc", State.OK, f"release 13.0, V13.0.88 ({elsewhere})"
    )
    broken = program(path, "nvcc", "print()")
    assert compilers.nvcc({}).found == f"version unknown ({broken})"


class FakeNvrtc:
    """``cuda.bindings.nvrtc``, whose steps a test may let fail."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.options: list[bytes] = []
        self.open = 0

    def _status(self, step: str) -> SimpleNamespace:
        failed = step == self.failing
        return SimpleNamespace(value=int(failed), name=f"NVRTC_ERROR_{step}")

    def nvrtcVersion(self) -> tuple[object, int, int]:  # noqa: N802 (as the library)
        """The version on paper."""
        return self._status("VERSION"), 13, 0

    def nvrtcCreateProgram(self, *_: object) -> tuple[object, str]:  # noqa: N802
        """Open a program."""
        self.open += 1
        return self._status("CREATE"), "program"

    def nvrtcCompileProgram(  # noqa: N802
        self, _: str, count: int, options: list[bytes]
    ) -> tuple[object]:
        """Note the options."""
        assert count == len(options)
        self.options = options
        return (self._status("COMPILE"),)

    def nvrtcDestroyProgram(self, _: str) -> tuple[object]:  # noqa: N802
        """Close a program."""
        self.open -= 1
        return (self._status("DESTROY"),)


def test_nvrtc_compiles_for_the_gpu_that_is_here() -> None:
    """The program is closed again."""
    fake = FakeNvrtc()
    assert compilers.nvrtc(fake, "sm_90") == Finding(
        "NVRTC", State.OK, "13.0, compiles for sm_90"
    )
    assert (fake.options, fake.open) == ([b"--gpu-architecture=sm_90"], 0)


@pytest.mark.parametrize("step", ["CREATE", "COMPILE"])
def test_an_nvrtc_that_fails_blocks(step: str) -> None:
    """The head of every replay is compiled by it."""
    told = compilers.nvrtc(FakeNvrtc(step), "sm_999")
    assert (told.state, told.blocks) == (State.MISSING, True)
    assert told.found == f"13.0 fails with NVRTC_ERROR_{step} for sm_999"


def test_an_nvrtc_that_is_not_found_blocks() -> None:
    """The bindings are there, the library is not."""

    class Absent:
        def nvrtcVersion(self) -> None:  # noqa: N802
            """Fail as the bindings do."""
            msg = 'Failure finding "libnvrtc.so.13"\nlistdir'
            raise RuntimeError(msg)

    told = compilers.nvrtc(Absent(), "sm_90")
    assert (told.found, told.blocks) == ('Failure finding "libnvrtc.so.13"', True)
