from pathlib import Path

import pytest
import torch

pytest.importorskip("cupti", reason="the cuda extra is not installed")

from layerscope.cli.main import main
from layerscope.experiment import SERIAL
from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.edits import Allowed, Change, plan
from layerscope.graphs.players import head_for
from layerscope.layers.feed import restart
from layerscope.runner.body import body_of
from layerscope.selftest.plan import NAMES, planted_arms
from layerscope.selftest.workload import PlantedWorkload
from tests.graphs.handmade_graphs import full, row

PASSES = 3


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_computes_what_torch_does(name: str, player: GraphPlayer) -> None:
    """Captured, at every step, after its result was spoilt."""
    arms, reads = planted_arms(name)
    device = torch.device("cuda", torch.cuda.current_device())
    workload = PlantedWorkload(arms, reads, PASSES, device)
    head = head_for(workload.feed)
    for arm in arms:
        replay = player.capture(body_of(workload, head, arm), PASSES)
        restart(workload.feed, 1)
        for step in (0, 1, 2):
            player.wait()
            workload.poison()
            player.wait()
            replay.launch()
            player.wait()
            assert int(workload.feed.step) == step
            assert workload.error(arm, PASSES - 1, PASSES) == 0.0
        replay.close()


def test_writes_stand_between_two_kernels(player: GraphPlayer) -> None:
    """In the base of the case ``gap``: in the region before them, all in one node."""
    arms, reads = planted_arms("gap")
    device = torch.device("cuda", torch.cuda.current_device())
    workload = PlantedWorkload(arms, reads, 1, device)
    replay = player.capture(body_of(workload, head_for(workload.feed), "base"), 1)
    kinds = [node.kind for node in replay.nodes]
    assert kinds == ["kernel"] * 5 + ["memory operation"] + ["kernel"] * 4
    assert replay.nodes[5].region == "o_proj_all_reduce"
    assert replay.links == full(*row(10))
    assert plan(SERIAL, replay.nodes, replay.links, Allowed()) == Change()
    replay.close()


def test_three_planted_causes_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two that are in the records, and one that only a serial twin shows."""
    folder = str(tmp_path / "runs")
    assert main(["selftest", "--only", "less,trigger,gap", "-o", folder]) == 0
    assert capsys.readouterr().out.startswith("selftest: 3 of 3 passed\n")
