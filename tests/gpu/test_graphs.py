import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import MeasurementError
from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.players import head_for
from layerscope.graphs.replay import HEAD_PASS, Body
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.layers.problem import Problem, advance, restart
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


def test_the_advance_kernel_does_what_the_plain_torch_head_does(
    problem: Problem,
) -> None:
    """Step, inputs and routing bias agree bit by bit over more than one cycle."""
    head = head_for(problem)
    state = (
        problem.launches,
        problem.step,
        problem.buffers[0].hidden,
        problem.router_bias,
    )
    ours: list[list[torch.Tensor]] = []
    plain: list[list[torch.Tensor]] = []
    for results, run in ((ours, head), (plain, lambda: advance(problem))):
        restart(problem, 2)
        for _ in range(2 * problem.steps + 1):
            run()
            results.append([t.clone() for t in state if t is not None])
    for left, right in zip(ours, plain, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_a_replay_changes_its_inputs_and_its_outputs_every_time(
    player: GraphPlayer, body: Body, problem: Problem
) -> None:
    """Constant inputs would hide a missing wait; each step computes something new."""
    replay = player.capture(body, 2)
    restart(problem, 1)
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
        restart(problem, 1)
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
