import pytest
import torch

from layerscope.graphs import players
from layerscope.graphs.eager import EagerPlayer
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.layers.problem import ProblemOptions, make_problem
from layerscope.layers.spec import DType, LayerSpec
from tests import handmade

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("device", "cuda", "missing", "expected"),
    [
        (GPU, "13.0", (), True),
        (GPU, "13.0", ("cuda",), False),
        (GPU, "13.0", ("cuda.bindings",), False),
        (GPU, None, (), False),  # ROCm calls its devices cuda too
        (CPU, "13.0", (), False),
    ],
)
def test_graphs_are_read_node_by_node_on_cuda_with_its_bindings(
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
    cuda: str | None,
    missing: tuple[str, ...],
    *,
    expected: bool,
) -> None:
    """The device, the build of torch and the installed bindings must all fit."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(
        players, "find_spec", lambda name: None if name in missing else name
    )
    assert players.has_cuda_bindings(device) is expected


def test_every_device_has_a_player(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU plays eagerly; a GPU without bindings through torch's own graphs."""
    monkeypatch.setattr(players, "has_cuda_bindings", lambda _: False)
    assert isinstance(players.player_for(CPU), EagerPlayer)
    assert isinstance(players.player_for(GPU), TorchGraphPlayer)


def test_all_players_of_a_gpu_share_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs on a second one slow down those on the first."""
    pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")
    from layerscope.graphs import cuda  # noqa: PLC0415 (needs bindings)

    current = iter((0, 1, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(current))
    monkeypatch.setattr(torch.cuda, "Stream", lambda index: (object(), index))
    cuda._stream_of.cache_clear()
    first, other, second = (cuda.GraphPlayer()._stream for _ in range(3))
    cuda._stream_of.cache_clear()
    assert first is second
    assert first != other


def test_the_head_of_a_replay_loads_the_next_step() -> None:
    """Without kernels of our own, torch's operators count the step and copy inputs."""
    spec = LayerSpec(model=handmade.model(), dtype=DType.FLOAT32, context=16)
    problem = make_problem(spec, ProblemOptions(passes=1, steps=3))
    head = players.head_for(problem.feed)
    for step in (1, 2, 0, 1):
        head()
        assert int(problem.feed.step) == step
        assert torch.equal(problem.buffers[0].hidden, problem.inputs[step])
