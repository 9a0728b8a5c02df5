from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from layerscope.analyze.bootstrap import Estimate
from layerscope.errors import MeasurementError
from layerscope.graphs.skeleton import Stage, Variant
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec
from layerscope.run_header import Bound, ReadCost
from layerscope.runner import limits
from layerscope.runner.limit_times import Effort
from layerscope.runner.limits import (
    check_device,
    mean_experts,
    measure_bounds,
    measure_limits,
    measure_reads,
)

GPU = torch.device("cuda", 0)
CHAIN = (
    Stage(name="read", region="moe", bytes=1_000),
    Stage(name="sum", region="moe"),
)
Install = Callable[..., list[Any]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Stands a GPU in, whose passes take 1 ns a byte and 10 ns a kernel."""

    def installed(
        capability: tuple[int, int] = (9, 0), free_bytes: int = 10**11
    ) -> list[Any]:
        planned: list[Any] = []

        def timed(plans: dict[Any, Any], handed_bytes: int, *_: object) -> Any:  # noqa: ANN401 (by key)
            planned.append((plans, handed_bytes))
            found: dict[Any, Estimate] = {}
            for (key, _), plan in plans.items():
                time = _paper_time(plan)
                if key not in found or time.value < found[key].value:
                    found[key] = time
            return found

        monkeypatch.setattr(limits, "check_device", lambda _: None)
        monkeypatch.setattr(limits, "free_bytes", lambda _: free_bytes)
        monkeypatch.setattr(limits, "_fastest", timed)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        return planned

    return installed


def _paper_time(plan: Any) -> Estimate:  # noqa: ANN401 (a private class)
    kernels = 1 if plan.variant is Variant.ONE_READ else len(plan.chain)
    value = sum(stage.bytes for stage in plan.chain) + 10.0 * kernels
    value += {2: 5.0, 4: 0.0, None: 7.0}[plan.most]
    return Estimate(value, value - 1, value + 1, 24, 24.0)


def bound(arm: str, name: str, pass_ns: float, kernels: int) -> Bound:
    """A bound of the chain above."""
    return Bound(
        arm=arm,
        name=name,
        pass_ns=pass_ns,
        low_ns=pass_ns - 1,
        high_ns=pass_ns + 1,
        kernels=kernels,
        bytes=1_000,
    )


def test_bounds_are_of_every_chain_and_variant(install: Install) -> None:
    """The grid of four blocks a multiprocessor is the fastest on paper."""
    planned = install()
    found = measure_bounds({"": CHAIN, "fused": CHAIN[:1]}, 512, GPU)
    names = ("no PDL", "stock PDL", "legal early start", "all early")
    assert found == (
        *(bound("", name, 1_020.0, 2) for name in names),
        bound("", "one read", 1_010.0, 1),
        *(bound("fused", name, 1_010.0, 1) for name in names),
        bound("fused", "one read", 1_010.0, 1),
    )
    ((plans, handed_bytes),) = planned
    assert {plan.lengths for plan in plans.values()} == {(8, 16, 24)}
    assert handed_bytes == 512


def test_kernels_start_early_only_where_the_device_can(install: Install) -> None:
    """Before compute capability 9.0 there is no programmatic launch."""
    install(capability=(8, 0))
    found = measure_bounds({"": CHAIN}, 512, GPU)
    assert [each.name for each in found] == ["no PDL", "one read"]


def test_little_memory_makes_shorter_replays_or_none(install: Install) -> None:
    """Every pass needs memory of its own, and three lengths three passes."""
    planned = install(free_bytes=12_000)
    measure_bounds({"": CHAIN}, 512, GPU)
    ((plans, _),) = planned
    assert {plan.lengths for plan in plans.values()} == {(3, 6, 10)}
    install(free_bytes=3_000)
    with pytest.raises(MeasurementError, match=r"3\.072 kB of GPU memory.* 2\.700 kB"):
        measure_bounds({"": CHAIN}, 512, GPU)


def test_reads_are_of_ten_sizes(install: Install) -> None:
    """1 MiB to 512 MiB; what takes few microseconds is replayed more often."""
    planned = install()
    sizes = [1 << power for power in range(20, 30)]
    assert measure_reads(GPU) == tuple(
        ReadCost(bytes=size, duration_ns=size + 10.0) for size in sizes
    )
    ((plans, handed_bytes),) = planned
    by_size = {size: plan.lengths for (size, _), plan in plans.items()}
    assert by_size == dict.fromkeys(sizes[:4], (32, 64, 96)) | dict.fromkeys(
        sizes[4:], (8, 16, 24)
    )
    assert handed_bytes == 0


def test_sizes_that_do_not_fit_are_not_read(install: Install) -> None:
    """24 copies of 32 MiB are 805 MB; of 1 MiB, 96 are needed."""
    install(free_bytes=900_000_000)
    assert [read.bytes >> 20 for read in measure_reads(GPU)] == [1, 2, 4, 8, 16, 32]
    install(free_bytes=100_000_000)
    with pytest.raises(MeasurementError, match=r"100\.7 MB"):
        measure_reads(GPU)


def test_limits_of_a_layer_are_its_bounds_and_reads(install: Install) -> None:
    """The standard chain has no name, arms have theirs; activations are six rows."""
    planned = install()
    spec = LayerSpec(model=preset("llama-3.1-8b"))
    bounds, reads = measure_limits(spec, None, GPU, arms={"fused": CHAIN})
    assert [(each.arm, each.kernels) for each in bounds] == [
        *[("", 10)] * 4,
        ("", 1),
        *[("fused", 2)] * 4,
        ("fused", 1),
    ]
    assert len(reads) == 10
    assert [handed for _, handed in planned] == [6 * 4096 * 2, 0]


def test_limits_note_apart_what_is_measured(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the note that is asked for, and as much effort."""
    planned = install()
    efforts: list[Effort | None] = []
    timed = limits._fastest

    def seen(
        plans: Any,  # noqa: ANN401 (a private class)
        handed_bytes: int,
        device: torch.device,
        effort: Effort | None,
    ) -> dict[Any, Estimate]:
        efforts.append(effort)
        return timed(plans, handed_bytes, device, effort)

    monkeypatch.setattr(limits, "_fastest", seen)
    asked = Effort(captures=7, note=lambda _: None)
    spec = LayerSpec(model=preset("llama-3.1-8b"))
    measure_limits(spec, None, GPU, asked)
    assert efforts == [asked, replace(asked, phase="reads")]
    assert (asked.phase, len(planned)) == ("bounds", 2)


def test_a_cpu_is_refused() -> None:
    """The line says where limits are measured."""
    with pytest.raises(MeasurementError, match="on an NVIDIA GPU"):
        check_device(torch.device("cpu"))


def test_bindings_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without them is told what to install."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(limits, "has_cuda_bindings", lambda _: False)
    with pytest.raises(MeasurementError, match=r"pip install 'layerscope\[cuda\]'"):
        check_device(GPU)


def test_the_mean_number_of_experts_is_drawn() -> None:
    """Six rows of eight choose 128 (1 - (1 - 8 / 128)^6) = 41.1 of 128 on average."""
    assert mean_experts(LayerSpec(model=preset("qwen3-30b-a3b"))) == 41
    assert mean_experts(LayerSpec(model=preset("llama-3.1-8b"))) is None
