from pathlib import Path

import msgspec
import pytest
import torch

from layerscope.errors import BackendError
from layerscope.run_header import BitsCheck
from layerscope.runner.bench import Bench
from layerscope.runner.switch_bits import check_bits
from layerscope.study import Arm
from layerscope.switches import SwitchArms, TakenApart
from tests.runner import fakes

PLAIN, QUICK = Arm(backend="paper", switches={"quick": "off"}), Arm(backend="paper")


def bench(folder: Path, *, bitwise: bool, outputs: dict[str, float]) -> Bench:
    """A bench of two arms between which one switch is turned.

    Args:
        folder: of the run.
        bitwise: what the switch says of itself.
        outputs: what each arm writes, by name.
    """
    switch = SwitchArms(
        name="quick", only=QUICK.name, without=PLAIN.name, bitwise=bitwise
    )
    apart = TakenApart(
        backend="paper", off=PLAIN.name, on=QUICK.name, switches=(switch,)
    )
    study = msgspec.structs.replace(
        fakes.study(QUICK), taken_apart=(apart,), switch_arms=(PLAIN,)
    )
    made = fakes.bench(study, folder, lambda *_: 1)
    told: list[str] = []

    class Writing(fakes.ScriptedReplay):
        def launch(self) -> None:
            super().launch()
            assert self.problem.buffers[0].out.isnan().all()  # spoiled before
            for buffers in self.problem.buffers:
                buffers.out.fill_(outputs[self.arm])
            told.append(self.arm)

    seen: list[int] = []
    problem = fakes.workload(made).problem
    for arm in (QUICK, PLAIN):
        passes = study.passes
        made.replays[arm.name, passes] = Writing(arm.name, passes, problem, seen)
    return made


@pytest.mark.parametrize("bitwise", [True, False])
def test_equal_outputs_are_noted_once_a_pair(tmp_path: Path, *, bitwise: bool) -> None:
    """Of one switch, alone and beside all others is the same pair."""
    made = bench(
        tmp_path / "run", bitwise=bitwise, outputs={"paper": 1.0, PLAIN.name: 1.0}
    )
    assert check_bits(made) == [
        BitsCheck(
            backend="paper",
            switch="quick",
            off="paper:quick=off",
            on="paper",
            is_equal=True,
        )
    ]


def test_other_bits_are_noted_where_nothing_else_is_said(tmp_path: Path) -> None:
    """Within the bound of the arm, which was checked before."""
    outputs = {"paper": 1.0, PLAIN.name: 1.0 + torch.finfo(torch.float32).eps}
    (check,) = check_bits(bench(tmp_path / "run", bitwise=False, outputs=outputs))
    assert not check.is_equal


def test_a_broken_claim_ends_the_study(tmp_path: Path) -> None:
    """An arm that does other work than it says is not timed."""
    outputs = {"paper": 1.0, PLAIN.name: 1.0 + torch.finfo(torch.float32).eps}
    with pytest.raises(BackendError) as caught:
        check_bits(bench(tmp_path / "run", bitwise=True, outputs=outputs))
    assert str(caught.value) == (
        "paper is wrong: outputs of paper are not bit for bit those of "
        "paper:quick=off, and its switch quick says that they are; nothing was timed"
    )


def test_a_pair_of_which_one_was_left_out_is_not_compared(tmp_path: Path) -> None:
    """Nothing runs for it."""
    made = bench(tmp_path / "run", bitwise=True, outputs={})
    made.study = made.study.keeping({QUICK.name})
    assert check_bits(made) == []


def test_an_arm_that_gave_up_is_told_as_that(tmp_path: Path) -> None:
    """Its outputs are not its work, and say nothing of its switch."""
    outputs = {"paper": 1.0, PLAIN.name: 2.0}
    made = bench(tmp_path / "run", bitwise=True, outputs=outputs)
    fakes.workload(made).arms["paper"].waits.abort.fill_(1)
    with pytest.raises(BackendError) as caught:
        check_bits(made)
    assert str(caught.value) == (
        "paper is wrong: its kernels gave up waiting; nothing of it is kept"
    )
