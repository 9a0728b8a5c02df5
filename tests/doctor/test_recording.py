import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from layerscope.doctor import recording
from layerscope.doctor.versions import Version
from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerPlayer
from layerscope.record.recorder import Event, Launch, Place, Recorded
from layerscope.regions import Region
from layerscope.report.diagnosis import Finding, State

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
PLACES = {0: Place(0, Region.OTHER)}
SEEN = (Event(0, "kernel", "add", 7, 10, 20),)


class FakeRecorder:
    """Sees what it is told to have seen of one launch."""

    name = "fake"

    def __init__(
        self, events: tuple[Event, ...] = SEEN, unmapped: int = 0, cause: str = ""
    ) -> None:
        self.events, self.unmapped, self.cause = events, unmapped, cause
        self.is_attached = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Attach, or refuse by `cause`."""
        if self.cause:
            raise MeasurementError(self.cause)
        self.is_attached = True
        yield
        self.is_attached = False

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Run the one launch and answer."""
        assert self.is_attached
        (launch,) = launches
        launch.replay.launch()
        return [Recorded(launch, self.events, PLACES, unmapped=self.unmapped)]


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [
        (FakeRecorder(), ""),
        (FakeRecorder(events=()), "1 of 1 nodes were not recorded"),
        (FakeRecorder(unmapped=2), "2 records belong to no node"),
    ],
)
def test_a_recorder_must_see_the_kernel_and_its_node(
    recorder: FakeRecorder, reason: str
) -> None:
    """Attaching is not enough: profile demands exactly the replay's nodes."""
    assert recording.attempt(recorder, EagerPlayer(), CPU) == reason
    assert not recorder.is_attached


def test_torch_profiler_really_records_on_this_cpu() -> None:
    """The recorder that profile takes on a CPU works where these tests run."""
    assert recording.try_torch_profiler(CPU) == ""


@pytest.mark.parametrize("error", [MeasurementError, RuntimeError])
def test_a_torch_profiler_that_fails_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Both what the recorder and what torch raises."""

    def fail(*_: object) -> str:
        msg = "no Kineto\nadvice"
        raise error(msg)

    monkeypatch.setattr(recording, "attempt", fail)
    assert recording.try_torch_profiler(CPU) == "no Kineto"


def test_what_torch_profiler_saw_is_told() -> None:
    """Operators on a CPU, kernels on a GPU; without it a CPU has no regions."""
    works = recording.torch_profiler("", is_gpu=False)
    assert works == Finding("torch.profiler", State.OK, "recorded an operator")
    works = recording.torch_profiler("", is_gpu=True)
    assert works.found == "recorded a kernel of a graph"
    fails = recording.torch_profiler("no Kineto", is_gpu=False)
    assert (fails.state, fails.found) == (State.MISSING, "no Kineto")
    assert fails.meaning == "only whole passes are measured"


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    """A machine whose CUPTI recorder is the fake, on a player of the CPU."""
    fake = FakeRecorder()

    class CuptiError(Exception):
        pass

    players = SimpleNamespace(GraphPlayer=EagerPlayer)
    recorders = SimpleNamespace(CuptiRecorder=lambda: fake)
    bindings = SimpleNamespace(cuptiError=CuptiError)
    monkeypatch.setitem(sys.modules, "cupti", ModuleType("cupti"))
    monkeypatch.setitem(sys.modules, "cupti.cupti", bindings)
    monkeypatch.setitem(sys.modules, "layerscope.graphs.cuda", players)
    monkeypatch.setitem(sys.modules, "layerscope.record.cupti", recorders)
    return fake


def test_a_cupti_that_records_has_no_fault(cupti: FakeRecorder) -> None:
    """The recorder and the player are those of profile."""
    assert recording.try_cupti(CPU) == ""
    cupti.unmapped = 1
    assert recording.try_cupti(CPU) == "1 records belong to no node"


def test_everything_that_cupti_raises_is_a_reason(
    cupti: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own error, the recorder's, torch's, and that of a missing driver."""
    own = sys.modules["cupti.cupti"].cuptiError
    for error in (own("INVALID"), MeasurementError("INVALID"), RuntimeError("INVALID")):

        def fail(_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(cupti, "record", fail)
        assert recording.try_cupti(CPU) == "INVALID"


def test_bindings_that_do_not_load_are_a_reason(
    cupti: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is attached then."""
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    assert "cupti" in recording.try_cupti(CPU)
    assert not cupti.is_attached


def test_the_packages_that_cupti_needs_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both at once, so that one installation is enough."""
    monkeypatch.setattr(recording, "find_spec", lambda _: None)
    monkeypatch.setattr(recording, "has_cuda_bindings", lambda _: False)
    assert recording.cupti_packages(GPU) == ["cuda-bindings", "cupti-python"]
    monkeypatch.setattr(recording, "find_spec", lambda _: object())
    monkeypatch.setattr(recording, "has_cuda_bindings", lambda _: True)
    assert recording.cupti_packages(GPU) == []


def with_cupti(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Let that version of CUPTI be installed."""
    versions = {"cupti-python": "13.0.1", "nvidia-cuda-cupti": version}
    monkeypatch.setattr(recording, "installed", lambda name: versions.get(name, ""))
    monkeypatch.setattr(recording, "_PARAMETERS", Path("/nowhere"))


@pytest.mark.parametrize(
    ("version", "supports", "fits"),
    [
        ("13.0.85", (13, 0), True),
        ("13.0.85", (13, 2), True),
        ("13.5.10", (13, 0), False),
        ("13.10.1", (13, 9), False),
        ("13.5.10", None, True),
        ("", (13, 0), True),
    ],
)
def test_cupti_must_not_be_newer_than_the_driver(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    supports: Version | None,
    *,
    fits: bool,
) -> None:
    """What is unknown is tried."""
    with_cupti(monkeypatch, version)
    reason = recording.unfit(supports)
    assert (reason == "") == fits


def test_a_cupti_that_is_too_new_is_replaced_by_the_one_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pinned, for pip alone takes the newest."""
    with_cupti(monkeypatch, "13.5.10")
    told = recording.cupti([], (13, 0), recording.unfit((13, 0)))
    assert told.state is State.LIMITED
    assert told.found == (
        "cupti-python 13.0.1, CUPTI 13.5.10: newer than the driver, which is for "
        "CUDA 13.0"
    )
    assert told.fix == (
        "pip install 'layerscope[cuda]' 'cupti-python==13.0.*' "
        "'nvidia-cuda-cupti==13.0.*'"
    )


def test_layouts_that_are_newer_than_the_library_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a pair is installed where only one of the two is pinned."""
    versions = {"cupti-python": "13.4.0", "nvidia-cuda-cupti": "13.0.85"}
    monkeypatch.setattr(recording, "installed", lambda name: versions.get(name, ""))
    for supports in ((13, 0), None):
        told = recording.cupti([], supports, recording.unfit(supports))
        assert told.state is State.LIMITED
        assert told.found == (
            "cupti-python 13.4.0, CUPTI 13.0.85: cupti-python lays out longer records "
            "than this CUPTI writes"
        )
        assert told.fix == (
            "pip install 'layerscope[cuda]' 'cupti-python==13.0.*' "
            "'nvidia-cuda-cupti==13.0.*'"
        )
    versions["cupti-python"] = "13.0.1"
    assert recording.unfit((13, 0)) == ""


def test_a_cupti_that_records_is_told_with_its_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library that no package brought is the system's."""
    with_cupti(monkeypatch, "13.0.85")
    assert recording.cupti([], (13, 0), "") == Finding(
        "CUPTI",
        State.OK,
        "cupti-python 13.0.1, CUPTI 13.0.85, recorded a kernel of a graph with its "
        "node",
    )
    with_cupti(monkeypatch, "")
    assert "CUPTI of the system," in recording.cupti([], None, "").found


def test_counters_for_root_only_are_no_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who knows ERR_NVGPUCTRPERM is told that it does not matter here."""
    with_cupti(monkeypatch, "13.0.85")
    parameters = tmp_path / "params"
    monkeypatch.setattr(recording, "_PARAMETERS", parameters)
    for value in (0, 1):
        parameters.write_text(f"A: 0\nRmProfilingAdminOnly: {value}\n")
        told = recording.cupti([], (13, 0), "")
        assert told.state is State.OK
        assert ("hardware counters are for root only" in told.found) == bool(value)


def test_a_cupti_that_fails_for_another_reason_has_another_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It serves one profiler; torch.profiler is named as the way to go on."""
    with_cupti(monkeypatch, "13.0.85")
    told = recording.cupti([], (13, 0), "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
    assert (told.state, told.blocks) == (State.LIMITED, False)
    assert told.fix.startswith("layerscope profile --recorder torch.profiler")


FITTING = (
    "pip install 'layerscope[cuda]' 'cupti-python==13.2.*' 'nvidia-cuda-cupti==13.2.*'"
)


@pytest.mark.parametrize(
    ("supports", "fix"),
    [
        ((13, 2), FITTING),
        (None, "pip install 'layerscope[cuda]'"),
        ((12, 8), "install a driver for CUDA 13 (580 or newer)"),
    ],
)
def test_a_cupti_that_is_not_there_is_told_with_what_fits(
    supports: Version | None, fix: str
) -> None:
    """And with who records instead."""
    assert recording.cupti(["cupti-python"], supports, "") == Finding(
        "CUPTI",
        State.MISSING,
        "not installed: cupti-python",
        "torch.profiler records instead, and kernels are mapped to regions by order",
        fix,
    )


def test_nvtx_is_for_those_who_profile_layerscope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run is whole without it."""
    monkeypatch.setattr(recording, "installed", {"nvtx": "0.2.17"}.get)
    assert recording.nvtx() == Finding("nvtx", State.OK, "0.2.17")
    monkeypatch.setattr(recording, "installed", lambda _: "")
    told = recording.nvtx()
    assert (told.state, told.fix) == (State.MISSING, "pip install nvtx")
