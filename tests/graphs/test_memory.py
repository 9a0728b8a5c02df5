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
        "use fewer --passes, --tp N --shard-shaped, or a shorter --context"
    )


@pytest.mark.usefixtures("free")
def test_a_failed_allocation_says_what_is_left() -> None:
    """Of the current GPU, with the same advice."""
    assert memory.out_of_memory() == (
        "out of GPU memory, 2.0 of 80.0 GB free; "
        "use fewer --passes, --tp N --shard-shaped, or a shorter --context"
    )
