import pytest
import torch

from layerscope.errors import MeasurementError
from layerscope.graphs import memory

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 GB of host memory and 2 of 80 GB on GPU 1, the current one."""
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: 5_000_000_000)
    sizes = {GPU: (2_000_000_000, 80_000_000_000)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=GPU: sizes[device])


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("device", "needed"), [(CPU, 5_000_000_000), (GPU, 2_000_000_000), (CPU, 0)]
)
def test_what_just_fits_is_let_through(device: torch.device, needed: int) -> None:
    """The last byte may be used."""
    memory.check_memory(device, needed)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("device", "needed", "need", "have"),
    [(CPU, 5_000_000_001, "5.0", "5.0"), (GPU, 44_440_000_000, "44.4", "2.0")],
)
def test_what_cannot_fit_is_refused_with_both_sizes_and_advice(
    device: torch.device, needed: int, need: str, have: str
) -> None:
    """The line says what is needed, what is free, and what to change."""
    with pytest.raises(MeasurementError) as raised:
        memory.check_memory(device, needed)
    assert str(raised.value) == (
        f"weights, KV and inputs need {need} GB and {have} GB are free; "
        "use fewer --passes or --requests, --tp N --shard-shaped, or a "
        "shorter --context"
    )


@pytest.mark.usefixtures("free")
def test_a_failed_allocation_says_what_is_left() -> None:
    """Of the current GPU, with the same advice."""
    assert memory.out_of_memory(torch.OutOfMemoryError()) == (
        "out of GPU memory, 2.0 of 80.0 GB free; "
        "use fewer --passes or --requests, --tp N --shard-shaped, or a "
        "shorter --context"
    )


def test_a_failed_allocation_on_the_host_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a CPU torch raises a plain RuntimeError, known by what it says."""
    monkeypatch.setattr(memory, "available_memory_bytes", lambda: 3_000_000_000)
    failed = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
    assert memory.is_out_of_memory(failed)
    assert memory.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not memory.is_out_of_memory(RuntimeError("shape mismatch"))
    assert memory.out_of_memory(failed).startswith("out of memory, 3.0 GB free; use")


def test_the_peak_of_the_process_is_in_bytes() -> None:
    """It is at least what a Python with torch takes, and less than a terabyte."""
    assert 50e6 < memory.peak_memory_bytes() < 1e12
