from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from layerscope.environment import DeviceFacts
from layerscope.errors import InputError
from layerscope.graphs import device

CPU, GPU = torch.device("cpu"), torch.device("cuda", 2)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose third GPU is torch's current one, with nothing against it."""
    properties = SimpleNamespace(
        name="Paper GPU",
        major=9,
        minor=0,
        gcnArchName="gfx942:sramecc+:xnack-",
        multi_processor_count=132,
        total_memory=80_000_000_000,
        L2_cache_size=50_000_000,
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {GPU: properties}.get)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(device, "driver_version", lambda: "580.65.06")
    monkeypatch.setattr(device, "mig_enabled", lambda *_: False)
    monkeypatch.setattr(device, "foreign_compute_processes", lambda *_, **__: [])
    monkeypatch.setattr(device, "_MPS_PIPE", "/nowhere")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which torch finds no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("gpu")
def test_auto_takes_the_current_gpu_where_there_is_one() -> None:
    """``cpu`` is the CPU even then."""
    assert device.resolve("auto") == GPU
    assert device.resolve("cuda") == GPU
    assert device.resolve("cpu") == CPU


@pytest.mark.usefixtures("no_gpu")
def test_auto_takes_the_cpu_where_there_is_no_gpu() -> None:
    """Measuring works on a laptop."""
    assert device.resolve("auto") == device.resolve("cpu") == CPU


@pytest.mark.parametrize(
    ("cuda", "why"),
    [
        (None, "torch 9.9 is built for CPUs only"),
        ("13.0", "torch finds no usable GPU (see nvidia-smi or rocm-smi)"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_is_not_there_is_one_line_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, why: str
) -> None:
    """The build of torch and the machine are different causes."""
    monkeypatch.setattr(torch, "__version__", "9.9")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(InputError) as raised:
        device.resolve("cuda")
    assert str(raised.value) == f"--device cuda: {why}; use --device cpu"


@pytest.mark.parametrize("name", ["gpu", "cuda:1", ""])
def test_unknown_devices_are_refused_with_the_known_ones(name: str) -> None:
    """One GPU is measured: which one is for CUDA_VISIBLE_DEVICES to say."""
    with pytest.raises(InputError) as raised:
        device.resolve(name)
    assert str(raised.value) == (f"unknown device {name!r}; use one of auto, cpu, cuda")


def test_a_cpu_is_described_by_name_threads_and_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors are the threads that torch will use."""
    monkeypatch.setattr(device, "cpu_name", lambda: "Paper CPU")
    monkeypatch.setattr(device, "available_memory_bytes", lambda: 16_000_000_000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert device.facts(CPU) == DeviceFacts(
        type="cpu", name="Paper CPU", processors=3, memory_bytes=16_000_000_000
    )


@pytest.mark.usefixtures("gpu")
def test_an_nvidia_gpu_is_described_by_torch_and_its_driver() -> None:
    """The architecture is written as compilers write it."""
    assert device.facts(GPU) == DeviceFacts(
        type="cuda",
        name="Paper GPU",
        index=2,
        architecture="sm_90",
        processors=132,
        memory_bytes=80_000_000_000,
        l2_bytes=50_000_000,
        driver="580.65.06",
        runtime="13.0",
    )


@pytest.mark.usefixtures("gpu")
def test_an_amd_gpu_is_described_without_its_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Backends ask for ``gfx942``, whatever features follow the name."""
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.0.5")
    monkeypatch.setattr(device, "driver_version", lambda: "")
    found = device.facts(GPU)
    assert (found.type, found.architecture) == ("hip", "gfx942")
    assert (found.driver, found.runtime) == ("", "7.0.5")


def test_nothing_speaks_against_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPS of a GPU that is not measured does not matter."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")  # noqa: S108 (only text)
    assert device.refusals(CPU) == []


@pytest.mark.usefixtures("gpu")
def test_nothing_speaks_against_a_gpu_of_our_own() -> None:
    """No MPS, no MIG, no one else."""
    assert device.refusals(GPU) == []


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("is_named", [False, True])
def test_a_daemon_of_mps_is_found_by_its_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_named: bool
) -> None:
    """CUDA becomes its client without being told to; elsewhere it finds none."""
    (tmp_path / "control").touch()
    monkeypatch.setattr(device, "_MPS_PIPE", str(tmp_path))
    if is_named:
        monkeypatch.setattr(device, "_MPS_PIPE", "/nowhere")
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert device.refusals(GPU) == [
        f"the process runs under MPS: its daemon left {tmp_path / 'control'}"
    ]
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
    assert device.refusals(GPU) == []


@pytest.mark.usefixtures("gpu")
def test_mps_mig_and_other_processes_are_all_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every reason comes, of the GPU that would be measured."""
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")
    monkeypatch.setattr(device, "mig_enabled", {2: True}.get)
    monkeypatch.setattr(
        device, "foreign_compute_processes", lambda index, *_, **__: [index, 4711]
    )
    assert device.refusals(GPU) == [
        "the process is set up for MPS by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "MIG is enabled, so the slice's memory system is shared",
        "other processes compute on this GPU: 2, 4711",
    ]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("initialised", "context", "expected"),
    [(False, None, False), (True, False, False), (True, True, True)],
)
def test_only_a_context_of_our_own_explains_a_process(
    monkeypatch: pytest.MonkeyPatch,
    context: bool | None,  # noqa: FBT001 (a parameter of the test)
    *,
    initialised: bool,
    expected: bool,
) -> None:
    """An initialised torch without a context is listed by no one, so others are."""
    asked: list[bool] = []

    def processes(_: int, __: str, *, own_context: bool) -> list[int]:
        asked.append(own_context)
        return []

    monkeypatch.setattr(device, "foreign_compute_processes", processes)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialised)
    has_context = {2: context}.__getitem__
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", has_context, raising=False)
    assert device.refusals(GPU) == []
    assert asked == [expected]


def test_a_cpu_is_measured_with_a_core_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread fewer for the block, never none; what the user set is kept."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    with device.spare_core(torch.device("cpu")):
        assert threads == [4, 3]
    assert threads == [4, 3, 4]
    threads[:] = [1]
    with device.spare_core(torch.device("cpu")):
        assert threads[-1] == 1
    for kind, count in (("cpu", "4"), ("cuda", None)):
        threads[:] = [4]
        if count:
            monkeypatch.setenv("OMP_NUM_THREADS", count)
        else:
            monkeypatch.delenv("OMP_NUM_THREADS")
        with device.spare_core(torch.device(kind)):
            assert threads == [4]
