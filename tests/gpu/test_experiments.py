"""What edits of captured graphs do on a GPU, on kernels whose answers are known."""

import random
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import MeasurementError
from layerscope.experiment import ALL, PASSES, SERIAL, Experiment
from layerscope.graphs.calibration import SmallChain, disabled_costs
from layerscope.graphs.cuda import GraphPlayer, GraphReplay, GraphVariant
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.replay import Link, Replay
from layerscope.regions import Region, layer_pass, region
from tests.gpu.experiment_kernels import READERS, EarlyWork, Ordered, Stages
from tests.graphs.handmade_graphs import early, full, row

PASS_COUNT = 5
KERNELS = 20 * PASS_COUNT
ALLOWED = Allowed(skippable=("moe",), pdl_safe=("stage",))
GPU = torch.device("cuda", 0)


@pytest.fixture(scope="module", autouse=True)
def _has_programmatic_launch() -> None:
    if torch.cuda.get_device_capability(GPU) < (9, 0):
        pytest.skip("programmatic launch needs compute capability 9.0")


@pytest.fixture(scope="module")
def weights() -> torch.Tensor:
    draw = torch.Generator(GPU).manual_seed(0)
    return torch.rand(40, 65_536, 4, generator=draw, device=GPU)


@pytest.fixture(scope="module")
def serial_stages(weights: torch.Tensor) -> Stages:
    return Stages(weights, programmatic=False)


@pytest.fixture(scope="module")
def early_stages(weights: torch.Tensor) -> Stages:
    return Stages(weights, programmatic=True)


@pytest.fixture(scope="module")
def native(player: GraphPlayer, serial_stages: Stages) -> Iterator[GraphReplay]:
    """A chain that was launched without the attribute: what serial means."""
    replay = player.capture(serial_stages, PASS_COUNT)
    yield replay
    player.wait()
    replay.close()


@pytest.fixture(scope="module")
def chain(player: GraphPlayer, early_stages: Stages) -> Iterator[GraphReplay]:
    """The same chain, in which every kernel starts early."""
    replay = player.capture(early_stages, PASS_COUNT)
    yield replay
    player.wait()
    replay.close()


def varied(replay: GraphReplay, experiment: Experiment) -> GraphVariant:
    """The replay of `experiment`, which must be possible and change something."""
    change = plan(experiment, replay.nodes, replay.links, ALLOWED)
    assert isinstance(change, Change), change
    assert not change.is_empty
    return replay.variant(change)


def medians_us(player: GraphPlayer, *replays: Replay, rounds: int = 60) -> list[float]:
    """Median time of each, once the clocks are up.

    In random order: which replay ran before one can change its time by 10 %.
    """
    end_s = time.monotonic() + 0.2
    while time.monotonic() < end_s:
        for replay in replays * 10:
            replay.launch()
        player.wait()
    draw = random.Random(0)  # noqa: S311 (not a secret)
    order = [
        place
        for _ in range(rounds)
        for place in draw.sample(range(len(replays)), len(replays))
    ]
    times_ns = player.time([replays[place] for place in order]).durations_ns()
    seen_ns: dict[int, list[int]] = {place: [] for place in order}
    for place, time_ns in zip(order, times_ns, strict=True):
        seen_ns[place].append(time_ns)
    return [median(seen_ns[place]) / 1e3 for place in range(len(replays))]


def result(player: GraphPlayer, stages: Stages, replay: Replay) -> torch.Tensor:
    """What one launch makes of cleared vectors."""
    player.wait()
    stages.clear()
    player.wait()
    replay.launch()
    player.wait()
    return stages.result()


def test_launches_with_the_attribute_are_captured_as_early_links(
    native: GraphReplay, chain: GraphReplay
) -> None:
    """Type and ports of every edge are read, with whatever bindings there are."""
    assert native.links == full(*row(KERNELS))
    assert chain.links == early(*row(KERNELS))


def test_the_serial_twin_takes_what_the_native_chain_takes(
    player: GraphPlayer, native: GraphReplay, chain: GraphReplay
) -> None:
    """Within 3 %, and the programmatic chain is faster than both."""
    twin = varied(chain, SERIAL)
    assert twin.links == native.links
    native_us, twin_us, chain_us = medians_us(player, native, twin, chain)
    assert twin_us == pytest.approx(native_us, rel=0.03)
    assert chain_us < 0.85 * twin_us


def test_edited_graphs_compute_what_the_captured_one_does(
    player: GraphPlayer, early_stages: Stages, chain: GraphReplay
) -> None:
    """Serial everywhere, between passes or in a region, and delayed: bit by bit."""
    expected = result(player, early_stages, chain)
    assert expected.abs().min() > 0
    for experiment in (
        SERIAL,
        Experiment(serial=PASSES),
        Experiment(serial="moe"),
        Experiment(delay="moe", delay_ns=2000),
        Experiment(delay="/stage", delay_ns=2000),
        Experiment(delay="moe/stage", delay_ns=2000),
    ):
        edited = varied(chain, experiment)
        assert torch.equal(result(player, early_stages, edited), expected)


def test_parts_of_a_chain_are_serialised(chain: GraphReplay) -> None:
    """Between passes every twentieth link becomes full, in moe every second ten."""
    passes = varied(chain, Experiment(serial=PASSES))
    fulls = [link.target for link in passes.links if link.is_full]
    assert fulls == [20, 40, 60, 80]
    moe = varied(chain, Experiment(serial="moe"))
    fulls = [link.target for link in moe.links if link.is_full]
    assert fulls == [index for index in range(KERNELS) if index // 10 % 2]


def test_full_edges_of_safe_kernels_can_be_programmatic(
    player: GraphPlayer,
    serial_stages: Stages,
    native: GraphReplay,
    chain: GraphReplay,
) -> None:
    """The chain is then as fast as one that was captured so, with equal results."""
    expected = result(player, serial_stages, native)
    edited = varied(native, Experiment(programmatic=True))
    assert edited.links == chain.links
    assert torch.equal(result(player, serial_stages, edited), expected)
    native_us, edited_us, chain_us = medians_us(player, native, edited, chain)
    assert edited_us < 0.85 * native_us
    assert edited_us == pytest.approx(chain_us, rel=0.1)


def test_experiments_are_undone(
    player: GraphPlayer, early_stages: Stages, chain: GraphReplay
) -> None:
    """Links, results and times of the captured graph are what they were."""
    expected = result(player, early_stages, chain)
    (before_us,) = medians_us(player, chain)
    variants = [
        varied(chain, SERIAL),
        varied(chain, Experiment(without="moe")),
        varied(chain, Experiment(delay="attention", delay_ns=0)),
    ]
    for variant in variants:
        variant.launch()
    player.wait()
    assert chain.captured.driver.links() == early(*row(KERNELS))
    assert torch.equal(result(player, early_stages, chain), expected)
    (after_us,) = medians_us(player, chain)
    assert after_us == pytest.approx(before_us, rel=0.05)


def test_a_graph_that_cannot_be_instantiated_leaves_the_captured_one(
    player: GraphPlayer, early_stages: Stages, chain: GraphReplay
) -> None:
    """A circle of edges is refused in one line, and nothing has changed."""
    expected = result(player, early_stages, chain)
    with pytest.raises(MeasurementError) as caught:
        chain.variant(Change(add=(Link(9, 2),)))
    assert "\n" not in str(caught.value)
    assert "failed with" in str(caught.value)
    assert chain.captured.driver.links() == chain.links
    assert torch.equal(result(player, early_stages, chain), expected)


def test_a_delay_adds_its_dose(player: GraphPlayer) -> None:
    """In every pass, beyond what a delay of 0 ns costs, to a few percent.

    The kernels after it read nothing: what reads memory may be faster after a pause.
    """
    passes = 4 * PASS_COUNT
    replay = player.capture(SmallChain(GPU, 132, 10), passes)
    doses_ns = (0, 2000, 4000, 8000)
    replays = [
        varied(replay, Experiment(delay="other", delay_ns=dose_ns))
        for dose_ns in doses_ns
    ]
    times_us = medians_us(player, *replays)
    for dose_ns, time_us in zip(doses_ns[1:], times_us[1:], strict=True):
        expected_us = passes * dose_ns / 1e3
        assert time_us - times_us[0] == pytest.approx(expected_us, rel=0.05)
    replay.close()


def test_a_long_delay_adds_its_dose_to_kernels_that_read_memory(
    player: GraphPlayer, chain: GraphReplay
) -> None:
    """In the serial twin; a short one may hide in what they read faster after it."""
    doses_ns = (0, 64_000, 128_000)
    replays = [
        varied(chain, Experiment(serial=ALL, delay="moe", delay_ns=dose_ns))
        for dose_ns in doses_ns
    ]
    times_us = medians_us(player, *replays, rounds=30)
    for dose_ns, time_us in zip(doses_ns[1:], times_us[1:], strict=True):
        expected_us = PASS_COUNT * dose_ns / 1e3
        assert time_us - times_us[0] == pytest.approx(expected_us, rel=0.1)


def test_a_delay_in_an_early_chain_adds_its_dose_beyond_what_hides(
    player: GraphPlayer, chain: GraphReplay
) -> None:
    """A spin begins when the kernel before it triggers, so a part of it is hidden."""
    doses_ns = (0, 200_000, 400_000)
    replays = [
        varied(chain, Experiment(delay="moe", delay_ns=dose_ns)) for dose_ns in doses_ns
    ]
    times_us = medians_us(player, *replays, rounds=30)
    for dose_ns, time_us in zip(doses_ns[1:], times_us[1:], strict=True):
        expected_us = PASS_COUNT * dose_ns / 1e3
        assert time_us - times_us[0] == pytest.approx(expected_us, rel=0.2)


def test_a_delay_before_a_role_shows_its_early_work(player: GraphPlayer) -> None:
    """What the early kernel saves rises with the dose to its work, and then stays.

    At a delay of 0 ns its work begins when the kernel before it ends, as without.
    """
    work_ns, doses_ns = 8_000, (0, 4_000, 16_000, 32_000)
    bodies = [EarlyWork(GPU, work_ns, is_early=is_early) for is_early in (False, True)]
    captured = [player.capture(body, PASS_COUNT) for body in bodies]
    replays = [
        varied(replay, Experiment(delay="/second", delay_ns=dose_ns))
        for replay in captured
        for dose_ns in doses_ns
    ]
    times_us = medians_us(player, *replays)
    late_us, early_us = times_us[: len(doses_ns)], times_us[len(doses_ns) :]
    savings_us = [
        (late - early) / PASS_COUNT
        for late, early in zip(late_us, early_us, strict=True)
    ]
    rises_us = [saving - savings_us[0] for saving in savings_us]
    assert rises_us[1] == pytest.approx(4.0, abs=1.5)
    assert rises_us[2] == pytest.approx(8.0, abs=1.5)
    assert rises_us[3] == pytest.approx(rises_us[2], abs=0.5)
    for replay in captured:
        replay.close()


def stale(player: GraphPlayer, body: Ordered, replay: Replay, launches: int) -> int:
    """Values that readers saw too early in so many launches."""
    player.wait()
    body.stale.zero_()
    body.ran.zero_()
    player.wait()
    for _ in range(launches):
        replay.launch()
    player.wait()
    return int(body.stale)


def test_a_reader_that_does_not_wait_sees_old_values(player: GraphPlayer) -> None:
    """So a reader that comes too early would be seen."""
    body = Ordered(GPU, "read_at_once", 0)
    replay = player.capture(body, 20)
    assert stale(player, body, replay, 20) > 0
    replay.close()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("between", [0, 1, 2, 5])
def test_order_holds_across_disabled_nodes(
    player: GraphPlayer, reader: str, between: int
) -> None:
    """Readers, by loads and by bulk copies, see all of what a late writer writes.

    The writer triggers first, and all edges are programmatic. Kernels between the two
    run in the captured graph, and not where they are disabled.
    """
    body = Ordered(GPU, reader, between)
    replay = player.capture(body, 20)
    assert all(link.programmatic for link in replay.links)
    assert stale(player, body, replay, 20) == 0
    assert int(body.ran) == 20 * 20 * between
    if between:
        without = varied(replay, Experiment(without="moe"))
        assert stale(player, body, without, 100) == 0
        assert int(body.ran) == 0
        assert stale(player, body, replay, 2) == 0
        assert int(body.ran) == 2 * 20 * between
    replay.close()


def test_branches_become_a_chain(player: GraphPlayer) -> None:
    """Two streams that fork and join run one after the other, with equal results."""
    x = torch.arange(1024, dtype=torch.float32, device=GPU)
    y, z = torch.zeros_like(x), torch.zeros_like(x)
    beside = torch.cuda.Stream()

    def fork(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index), region(Region.MOE):
                torch.add(x, 1, out=y)
                beside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(beside):
                    torch.mul(y, 3, out=z)
                y.mul_(1)
                torch.cuda.current_stream().wait_stream(beside)
                torch.add(y, z, out=y)

    replay = player.capture(fork, 2)
    count = len(replay.nodes)
    assert set(replay.links) != set(full(*row(count)))
    variant = varied(replay, SERIAL)
    assert variant.links == full(*row(count))
    y.zero_()
    player.wait()
    variant.launch()
    player.wait()
    assert torch.equal(y, 4 * (x + 1))
    replay.close()


def test_records_of_edited_graphs_find_their_nodes(chain: GraphReplay) -> None:
    """Disabled nodes leave none, and nothing overlaps in a serial twin."""
    pytest.importorskip("cupti", reason="the cuda extra is not installed")
    from layerscope.record.cupti import CuptiRecorder  # noqa: PLC0415
    from layerscope.record.recorder import Launch, fault  # noqa: PLC0415

    twin = varied(chain, SERIAL)
    without = varied(chain, Experiment(serial=ALL, without="moe"))
    recorder = CuptiRecorder()
    with recorder.attached():
        seen = recorder.record(
            [Launch(replay, "stages", 0, 0) for replay in (chain, twin, without)]
        )
    assert [fault(recorded) for recorded in seen] == [None] * 3
    assert [recorded.unmapped for recorded in seen] == [0] * 3
    numbers = [sorted(event.node for event in recorded.events) for recorded in seen]
    assert numbers[0] == numbers[1] == list(range(KERNELS))
    assert numbers[2] == [i for i in range(KERNELS) if i // 10 % 2 == 0]
    overlaps = []
    for recorded in seen:
        events = sorted(recorded.events, key=lambda event: event.node)
        pairs = pairwise(events)
        overlaps.append(sum(after.start_ns < before.end_ns for before, after in pairs))
    assert overlaps[0] > 0
    assert overlaps[1:] == [0, 0]


def test_small_chains_run_each_kernel_once_a_launch(player: GraphPlayer) -> None:
    """And not where it is disabled; the cost of disabled nodes is small."""
    body = SmallChain(GPU, blocks=3, kernels=4)
    replay = player.capture(body, 2)
    without = replay.variant(Change(disabled=(1, 5)))
    player.wait()
    body.counts.zero_()
    player.wait()
    replay.launch()
    without.launch()
    player.wait()
    assert body.counts.tolist() == [[4.0] * 3, [2.0] * 3, [4.0] * 3, [4.0] * 3]
    replay.close()
    costs = disabled_costs(player, GPU)
    assert [cost.nodes for cost in costs] == [1, 2, 5, 10, 20, 50]
    assert all(-500 < cost.cost_ns < 5000 + 1000 * cost.nodes for cost in costs)
