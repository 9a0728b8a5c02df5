import sys
from types import SimpleNamespace

import pytest

from layerscope.doctor import driver
from layerscope.doctor.gpu_state import GpuState, Unreadable
from layerscope.doctor.versions import Version
from layerscope.report.diagnosis import Finding, State

H200 = GpuState(
    driver="580.159.04",
    cuda=(13, 0),
    gpus=2,
    sm_clock_mhz=345,
    max_sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    max_memory_clock_mhz=3201,
    event_reasons=1,
    persistence=True,
)
ABSENT = Unreadable("nvidia-ml-py is not installed", is_installed=False)
SILENT = Unreadable("Driver Not Loaded", is_installed=True)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages have the versions on paper."""
    monkeypatch.setattr(driver, "installed", {"nvidia-ml-py": "13.6"}.get)


def bindings(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """Let the CUDA runtime say `number`; None takes the bindings away."""
    runtime = SimpleNamespace(cudaDriverGetVersion=lambda: (0, number))
    module = None if number is None else runtime
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", module)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(runtime=module))
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace())


@pytest.mark.parametrize(
    ("number", "state", "expected"),
    [
        (13010, H200, (13, 1)),  # a compatibility package, newer than NVML sees
        (None, H200, (13, 0)),
        (0, H200, (13, 0)),
        (13000, ABSENT, (13, 0)),
        (0, ABSENT, None),
        (None, SILENT, None),
    ],
)
def test_the_runtime_is_asked_before_nvml(
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    state: GpuState | Unreadable,
    expected: Version | None,
) -> None:
    """What programs can use counts, and either of them can be missing."""
    bindings(monkeypatch, number)
    assert driver.supported_cuda(state) == expected


@pytest.mark.parametrize(
    ("supports", "runtime"),
    [((13, 0), "13.0"), ((13, 2), "13.0"), ((13, 0), "12.8"), (None, "13.0")],
)
def test_a_driver_as_new_as_torch_is_fine(
    supports: Version | None, runtime: str
) -> None:
    """Drivers run all CUDA up to their own; what is unknown is not held against it."""
    assert driver.driver(H200, supports, runtime).state is State.OK


def test_a_driver_is_told_with_both_versions() -> None:
    """The driver's own number, its CUDA, and torch's."""
    assert driver.driver(H200, (13, 0), "12.8").found == (
        "580.159.04, for CUDA up to 13.0; torch uses CUDA 12.8"
    )
    assert driver.driver(ABSENT, None, "12.8").found == (
        "version unknown, for CUDA up to unknown; torch uses CUDA 12.8"
    )


def test_a_torch_of_a_newer_minor_is_a_limit() -> None:
    """Minor versions are compatible but for PTX."""
    found = driver.driver(H200, (13, 0), "13.1")
    assert found.state is State.LIMITED
    assert "PTX" in found.meaning
    assert found.fix == (
        "install a driver for CUDA 13.1, or torch for CUDA 13.0 "
        "(see pytorch.org/get-started)"
    )


def test_a_torch_of_a_newer_major_cannot_use_the_gpu() -> None:
    """12.8 is older than 13.0 for its major, whatever its minor."""
    found = driver.driver(H200, (12, 8), "13.0")
    assert found.state is State.MISSING
    assert found.fix.startswith(
        "install a driver for CUDA 13.0, or torch for CUDA 12.8"
    )


@pytest.mark.usefixtures("versions")
def test_an_nvml_that_answers_is_fine() -> None:
    """With the version of its package and the GPUs it sees."""
    assert driver.nvml(H200) == Finding("NVML", State.OK, "nvidia-ml-py 13.6, GPUs: 2")


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("state", "found", "fix"),
    [
        (ABSENT, "nvidia-ml-py is not installed", "pip install nvidia-ml-py"),
        (
            SILENT,
            "nvidia-ml-py 13.6: Driver Not Loaded",
            "let the process see the driver's libnvidia-ml.so.1 (nvidia-smi needs it)",
        ),
    ],
)
def test_an_nvml_that_is_silent_hides_who_else_computes(
    state: Unreadable, found: str, fix: str
) -> None:
    """A missing package and a missing driver are mended differently."""
    assert driver.nvml(state) == Finding(
        "NVML",
        State.MISSING,
        found,
        "clocks are not recorded, and nothing tells whether others use the GPU",
        fix,
    )


def test_an_idle_gpu_has_its_clocks() -> None:
    """Idling is no reason to worry."""
    assert driver.clocks(H200) == Finding(
        "clocks",
        State.OK,
        "SM 345 of 1,980 MHz, memory 3,201 of 3,201 MHz, held down by: nothing, "
        "persistence mode on",
    )


def test_a_throttled_gpu_is_a_limit_with_its_reasons() -> None:
    """0x44 is a power cap and heat; the fix reads and changes nothing."""
    state = GpuState(sm_clock_mhz=1200, event_reasons=0x45, persistence=False)
    found = driver.clocks(state)
    assert found.state is State.LIMITED
    assert found.found == (
        "SM 1,200 of – MHz, memory – of – MHz, held down by: software power cap, "
        "hardware thermal slowdown, persistence mode off"
    )
    assert found.fix == "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER"


def test_unknown_reasons_and_persistence_are_not_made_up() -> None:
    """What NVML does not tell is left out."""
    found = driver.clocks(GpuState(sm_clock_mhz=1200))
    assert found.state is State.OK
    assert found.found == "SM 1,200 of – MHz, memory – of – MHz"


@pytest.mark.parametrize("state", [ABSENT, SILENT, GpuState(driver="580")])
def test_without_clocks_a_run_says_nothing_of_them(
    state: GpuState | Unreadable,
) -> None:
    """A change of clock then looks like a difference."""
    found = driver.clocks(state)
    assert (found.state, found.found) == (State.MISSING, "not told")
