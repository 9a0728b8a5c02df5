from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import MeasurementError
from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.players import head_for
from layerscope.graphs.probe_kernels import AdvanceKernel
from layerscope.graphs.replay import HEAD_PASS, Body
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.layers.feed import Feed, Pool, advance, make_feed, restart
from layerscope.layers.problem import Problem
from layerscope.regions import Region, region


def test_every_node_of_a_captured_layer_has_a_pass_and_a_region(
    player: GraphPlayer, body: Body, problem: Problem
) -> None:
    """Nodes come in creation order, the same number for every pass and region."""
    replay = player.capture(body, 3)
    assert [node.index for node in replay.nodes] == list(range(len(replay.nodes)))
    head = [node for node in replay.nodes if node.pass_index == HEAD_PASS]
    assert [(node.kind, node.region) for node in head] == [("kernel", Region.OTHER)]
    counts = [
        [
            sum(n.pass_index == index and n.region == name for n in replay.nodes)
            for name in problem.spec.regions
        ]
        for index in range(3)
    ]
    assert counts[0] == counts[1] == counts[2]
    assert all(count > 0 for count in counts[0])
    assert 1 + 3 * sum(counts[0]) == len(replay.nodes)


def test_a_chain_of_kernels_has_one_edge_fewer_than_nodes(
    player: GraphPlayer, body: Body
) -> None:
    """One stream captures a chain: every node depends on the one before it."""
    replay = player.capture(body, 2)
    assert sorted(replay.edges) == [(i, i + 1) for i in range(len(replay.nodes) - 1)]


def test_nodes_outside_every_region_are_refused_with_their_count(
    player: GraphPlayer,
) -> None:
    """Work that no region owns cannot be attributed, so it is not timed."""
    x = torch.zeros(8, device="cuda")

    def stray(passes: int) -> None:
        for _ in range(passes):
            x.add_(1)
        with region(Region.OTHER):
            x.mul_(2)

    with pytest.raises(MeasurementError, match="2 of 3 graph nodes"):
        player.capture(stray, 2)


def test_a_body_that_synchronises_is_refused_in_one_line(player: GraphPlayer) -> None:
    """What cannot be captured is an error with its cause, and the player lives on."""
    x = torch.ones(8, device="cuda")

    def synchronising(passes: int) -> None:
        with region(Region.OTHER):
            x.mul_(passes)
            if torch.cuda.is_current_stream_capturing():
                x.sum().item()

    with pytest.raises(MeasurementError, match="cannot be captured"):
        player.capture(synchronising, 1)

    def fine(passes: int) -> None:
        with region(Region.OTHER):
            x.mul_(passes)

    assert len(player.capture(fine, 1).nodes) == 1


def random_feed(*inputs: tuple[torch.dtype, int], steps: int = 3) -> Feed:
    """A feed on the GPU with a pool of random bits for each type and length."""
    pools = []
    for seed, (dtype, length) in enumerate(inputs):
        draw = torch.Generator("cuda").manual_seed(seed)
        size = (steps, length * dtype.itemsize)
        bits = torch.empty(size, dtype=torch.uint8, device="cuda")
        rows = bits.random_(generator=draw).view(dtype)
        pools.append(Pool(rows, torch.zeros_like(rows[0])))
    return make_feed(steps, tuple(pools), torch.device("cuda"))


def snapshots(feed: Feed, head: Callable[[], None], hold: int) -> list[list[Tensor]]:
    """The count, the step and all targets, bit by bit, over more than two cycles."""
    restart(feed, hold)
    taken = []
    for _ in range(2 * hold * feed.steps + 1):
        head()
        targets = (pool.target.view(torch.uint8) for pool in feed.pools)
        taken.append([each.clone() for each in (feed.launches, feed.step, *targets)])
    return taken


def assert_same_head(feed: Feed, hold: int = 2) -> None:
    """Our kernel leaves what torch's operators leave, at every replay."""
    ours = snapshots(feed, AdvanceKernel(feed), hold)
    plain = snapshots(feed, lambda: advance(feed), hold)
    steps = [int(step) for _, step, *_ in ours]
    assert steps == [n // hold % feed.steps for n in range(len(ours))]
    for left, right in zip(ours, plain, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_the_advance_kernel_does_what_the_plain_torch_head_does(
    problem: Problem,
) -> None:
    """Step, inputs and routing bias of a layer agree bit by bit."""
    assert isinstance(head_for(problem.feed), AdvanceKernel)
    assert_same_head(problem.feed)


@pytest.mark.parametrize("hold", [1, 2, 3])
@pytest.mark.parametrize(
    "inputs",
    [
        (),
        ((torch.int8, 7),),
        ((torch.bfloat16, 3),),
        ((torch.int64, 1), (torch.int8, 1), (torch.float32, 4)),
        ((torch.float32, 16_384),),  # exactly what one block copies
        ((torch.float32, 16_388), (torch.int8, 7)),
        ((torch.int8, 65_537), (torch.bfloat16, 99_999), (torch.float32, 1_000_000)),
        ((torch.float32, 5_000_000),),  # more than all blocks at once
    ],
)
def test_the_advance_kernel_copies_pools_of_any_size(
    inputs: tuple[tuple[torch.dtype, int], ...], hold: int
) -> None:
    """Odd bytes, several pools, several blocks, and no pool at all."""
    assert_same_head(random_feed(*inputs), hold)


def test_the_advance_kernel_copies_to_where_no_vector_may_go() -> None:
    """Inputs that begin between two vectors are copied all the same."""
    length = 4 * 40_000
    rows = torch.arange(3 * length, dtype=torch.float32, device="cuda")
    target = torch.zeros(length + 1, device="cuda")[1:]
    pool = Pool(rows.view(3, length), target)
    assert_same_head(make_feed(3, (pool,), torch.device("cuda")))


def test_the_advance_kernel_writes_nothing_beside_its_targets() -> None:
    """Guards before and behind a target of odd length keep their value."""
    whole = torch.full((4 + 70_001 + 4,), 7, dtype=torch.int8, device="cuda")
    rows = torch.ones(2, 70_001, dtype=torch.int8, device="cuda")
    head = AdvanceKernel(make_feed(2, (Pool(rows, whole[4:-4]),), torch.device("cuda")))
    head()
    assert whole[:4].tolist() == whole[-4:].tolist() == [7] * 4
    assert bool((whole[4:-4] == 1).all())


def test_captured_heads_advance_at_every_launch(player: GraphPlayer) -> None:
    """A graph of nothing but the head counts on, as many blocks as it may have."""
    feed = random_feed((torch.float32, 1_000_000), (torch.int8, 7))
    head = AdvanceKernel(feed)

    def body(passes: int) -> None:
        del passes
        with region(Region.OTHER):
            head()

    replay = player.capture(body, 1)
    player.wait()
    restart(feed, 2)
    torch.cuda.synchronize()
    steps = []
    for _ in range(13):
        replay.launch()
        player.wait()
        steps.append(int(feed.step))
        for pool in feed.pools:
            expected = pool.rows[steps[-1]].view(torch.uint8)
            assert torch.equal(pool.target.view(torch.uint8), expected)
    assert steps == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0]


def test_a_replay_changes_its_inputs_and_its_outputs_every_time(
    player: GraphPlayer, body: Body, problem: Problem
) -> None:
    """Constant inputs would hide a missing wait; each step computes something new."""
    replay = player.capture(body, 2)
    restart(problem.feed, 1)
    outputs = []
    for _ in range(problem.steps):
        replay.launch()
        player.wait()
        outputs.append(problem.buffers[1].out.clone())
    assert not any(
        torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i]
    )
    replay.launch()
    player.wait()
    assert torch.equal(problem.buffers[1].out, outputs[0])


def test_torchs_own_graph_computes_the_same_layer(
    player: GraphPlayer, body: Body, problem: Problem
) -> None:
    """The fallback player's replays give the same bits as ours at the same step."""
    ours = player.capture(body, 2)
    theirs = TorchGraphPlayer().capture(body, 2)
    torch.cuda.synchronize()
    results = []
    for replay in (ours, theirs):
        restart(problem.feed, 1)
        torch.cuda.synchronize()
        replay.launch()
        torch.cuda.synchronize()
        results.append(problem.buffers[1].out.clone())
    assert torch.equal(*results)


def test_every_replay_of_a_round_is_timed(player: GraphPlayer, body: Body) -> None:
    """One positive duration comes back for each replay, in order."""
    short = player.capture(body, 1)
    long = player.capture(body, 4, short)
    assert long.pool == short.pool
    durations = player.time([long, short, long]).durations_ns()
    assert len(durations) == 3
    assert all(duration > 0 for duration in durations)
