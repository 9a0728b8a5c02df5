import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from layerscope import nvml
from layerscope.nvml import ClockReader, Clocks

GONE = 2**22 + 1  # above the largest process id of Linux


class NVMLError(Exception):
    """What every failing call raises."""


class FakeNvml(SimpleNamespace):
    """``pynvml`` with two GPUs whose answers a test may change."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.mig = (0, 0)
        self.starts = 0
        self.unsupported: set[str] = set()
        clocks = {"NVML_CLOCK_SM": 1980, "NVML_CLOCK_MEM": 3201}
        super().__init__(
            **dict(zip(clocks, clocks, strict=True)),
            NVML_TEMPERATURE_GPU="GPU",
            NVMLError=NVMLError,
            nvmlInit=self._call("start", self._start),
            nvmlSystemGetDriverVersion=self._call("driver", lambda: "580.65.06"),
            nvmlDeviceGetHandleByIndex=self._call("index", {0: "gpu0", 1: "gpu1"}.get),
            nvmlDeviceGetHandleByUUID=self._call("uuid", "gpu of {}".format),
            nvmlDeviceGetMigMode=self._call("mig", lambda _: self.mig),
            nvmlDeviceGetComputeRunningProcesses=self._call("pids", self._processes),
            nvmlDeviceGetClockInfo=self._call("clock", lambda _, kind: clocks[kind]),
            nvmlDeviceGetTemperature=self._call(
                "heat", lambda _, kind: {"GPU": 41}[kind]
            ),
            nvmlDeviceGetPowerUsage=self._call("power", {"gpu0": 312_000}.get),
            nvmlDeviceGetCurrentClocksEventReasons=self._call("why", {"gpu0": 4}.get),
        )

    def _call(self, name: str, answer: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if name in self.unsupported:
                raise NVMLError
            return answer(*arguments)

        return call

    def _start(self) -> None:
        self.starts += 1

    def _processes(self, handle: str) -> list[SimpleNamespace]:
        assert handle == "gpu0"
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A machine on which ``import pynvml`` gives the fake."""
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml._nvml.cache_clear()
    yield library
    nvml._nvml.cache_clear()


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which ``import pynvml`` fails."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._nvml.cache_clear()
    yield
    nvml._nvml.cache_clear()


def answers() -> tuple[object, ...]:
    """What is said of GPU 0 and of its clocks."""
    return (
        nvml.driver_version(),
        nvml.mig_enabled(0),
        nvml.foreign_compute_processes(0, own_context=False),
        ClockReader(0).read(),
    )


@pytest.mark.usefixtures("absent")
def test_every_question_has_an_answer_without_the_library() -> None:
    """Without ``pynvml`` nothing is known and nothing fails."""
    assert answers() == ("", False, [], Clocks())


def test_every_question_has_an_answer_without_a_driver(fake: FakeNvml) -> None:
    """Where NVML cannot start, it is as if it were not installed."""
    fake.unsupported.add("start")
    assert answers() == ("", False, [], Clocks())


def test_the_library_is_started_once(fake: FakeNvml) -> None:
    """However often it is asked."""
    answers()
    answers()
    assert fake.starts == 1


def test_what_one_call_does_not_support_is_unknown_and_the_rest_known(
    fake: FakeNvml,
) -> None:
    """A GPU without a power meter still tells its clocks."""
    fake.unsupported.add("power")
    assert ClockReader(0).read() == Clocks(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=41,
        power_mw=None,
        throttle_reasons=4,
    )


def test_no_gpu_has_no_clocks(fake: FakeNvml) -> None:
    """A CPU is no index, so NVML is not even asked."""
    assert ClockReader(None).read() == Clocks()
    assert fake.starts == 0


def test_the_driver_names_its_version(fake: FakeNvml) -> None:
    """The display driver's version, or nothing where it is not told."""
    assert nvml.driver_version() == "580.65.06"
    fake.unsupported.add("driver")
    assert nvml.driver_version() == ""


@pytest.mark.parametrize(
    ("mode", "enabled"), [((0, 0), False), ((0, 1), False), ((1, 0), True)]
)
def test_mig_counts_as_it_is_now(
    fake: FakeNvml, mode: tuple[int, int], *, enabled: bool
) -> None:
    """The present mode counts, not the one after the next reset."""
    fake.mig = mode
    assert nvml.mig_enabled(0) is enabled


def test_a_gpu_that_knows_no_mig_is_not_split(fake: FakeNvml) -> None:
    """Consumer GPUs do not support the question."""
    fake.unsupported.add("mig")
    assert nvml.mig_enabled(0) is False


def test_a_visible_mig_slice_is_mig(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a slice says it, whatever the mode of a GPU of that index."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-8d2e")
    assert fake.mig == (0, 0)
    assert nvml.mig_enabled(0) is True


@pytest.mark.parametrize(
    ("visible", "index", "handle"),
    [
        (None, 1, "gpu1"),
        ("", 1, "gpu1"),
        ("1,0", 0, "gpu1"),
        ("1, 0", 1, "gpu0"),
        ("GPU-5f1c,0", 0, "gpu of GPU-5f1c"),
        ("0", 1, "gpu1"),
        (None, 7, None),
    ],
)
@pytest.mark.usefixtures("fake")
def test_torchs_index_is_followed_through_the_visible_devices(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, index: int, handle: str | None
) -> None:
    """NVML counts all GPUs of the machine, torch only the visible ones."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml._handle(index) == handle


@pytest.mark.parametrize(
    ("pids", "own_context", "others"),
    [
        ([], False, []),
        ([], True, []),
        (["own"], True, []),
        (["own", 1], True, [1]),
        ([1], True, [1]),  # alive here, so not ourselves under another number
        ([GONE], True, []),  # ourselves, under the number of the host
        ([GONE, GONE + 1], True, [GONE + 1]),
        (["own", GONE], True, [GONE]),
        ([GONE], False, [GONE]),
    ],
)
def test_processes_of_others_are_listed_and_our_own_is_not(
    fake: FakeNvml, pids: list[int | str], others: list[int], *, own_context: bool
) -> None:
    """In a container our process may be listed under a number that no one has here."""
    fake.pids = [os.getpid() if pid == "own" else int(pid) for pid in pids]
    found = nvml.foreign_compute_processes(0, own_context=own_context)
    assert found == others


@pytest.mark.usefixtures("fake")
def test_a_uuid_finds_the_gpu_however_the_devices_are_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA numbers mixed GPUs by speed, NVML by bus; the uuid is the same in both."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert nvml._handle(0, "5f1c") == "gpu of GPU-5f1c"


def test_a_uuid_that_nvml_does_not_know_leaves_the_index(fake: FakeNvml) -> None:
    """An old driver is no reason to go without clocks."""

    def unknown(_: str) -> str:
        raise fake.NVMLError

    fake.nvmlDeviceGetHandleByUUID = unknown
    assert nvml._handle(1, "5f1c") == "gpu1"
