from collections.abc import Mapping
from pathlib import Path

import msgspec
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.plugin import Step
from layerscope.regions import Region
from layerscope.run import load
from layerscope.runner.bench import Bench
from layerscope.runner.stamps import READINGS, note_stamps, stamp_rows
from layerscope.schema import STAMPS
from layerscope.study import Arm
from tests.runner import fakes

PLAIN, STAMPED = Arm(backend="paper"), Arm(backend="paper", stamps=True)
NOTED = {
    "qkv": torch.tensor([[1_000, 1_050, 1_100, 1_200], [1_030, 0, 0, 1_240]]),
    "attention": torch.tensor([[0, 0, 0, 0]]),
}


def bench(folder: Path) -> Bench:
    """A bench of one arm, which is there once more with stamps."""
    study = msgspec.structs.replace(fakes.study(PLAIN), stamp_arms=(STAMPED,))
    return fakes.bench(study, folder, lambda *_: 1)


def test_times_are_since_the_first_block_began() -> None:
    """0 is what was not noted; a block that left at once has a row all the same."""
    assert_frame_equal(
        stamp_rows("paper (stamps)", 3, NOTED),
        pl.DataFrame(
            {
                "arm": ["paper (stamps)"] * 3,
                "reading": [3] * 3,
                "role": ["qkv", "qkv", "attention"],
                "block": [0, 1, 0],
                "begun_ns": [0, 30, None],
                "waited_ns": [50, None, None],
                "triggered_ns": [100, None, None],
                "ended_ns": [200, 240, None],
            },
            schema=STAMPS,
        ),
    )


def test_every_stamped_arm_is_read_so_many_times(tmp_path: Path) -> None:
    """After two replays in a row each time, of a step that both run."""
    made, steps = bench(tmp_path / "run"), list[int]()

    def read(arm: str) -> Mapping[str, Tensor]:
        assert arm == "paper (stamps)"
        steps.append(made.step)
        return NOTED

    made.read_stamps = read
    note_stamps(made)
    assert steps == [reading % made.workload.feed.steps for reading in range(READINGS)]
    replay = made.longest("paper (stamps)")
    assert isinstance(replay, fakes.ScriptedReplay)
    assert replay.seen == [step for step in steps for _ in range(2)]
    made.writer.checkpoint()
    found = load(tmp_path / "run").stamps
    assert found["reading"].unique().sort().to_list() == list(range(READINGS))
    assert found.height == READINGS * 3


def test_stamps_that_cannot_be_read_are_a_warning(tmp_path: Path) -> None:
    """One, however often they were tried; all else of the run is whole."""
    made = bench(tmp_path / "run")

    def read(_: str) -> Mapping[str, Tensor]:
        msg = "the device says no"
        raise RuntimeError(msg)

    made.read_stamps = read
    note_stamps(made)
    assert made.writer.header.warnings == [
        "no stamps of paper (stamps): RuntimeError: the device says no"
    ]


def test_nothing_is_replayed_without_stamped_arms(tmp_path: Path) -> None:
    """Nor where the work has no stamps, as a draft."""
    made = bench(tmp_path / "run")
    note_stamps(made)
    made.study = msgspec.structs.replace(made.study, stamp_arms=())
    made.read_stamps = lambda _: NOTED
    note_stamps(made)
    replay = made.longest("paper")
    assert isinstance(replay, fakes.ScriptedReplay)
    assert replay.seen == []


class Noting:
    """A step that notes something."""

    def read_stamps(self) -> Mapping[str, Tensor]:
        """What it noted."""
        return NOTED


def test_a_layer_reads_the_step_that_notes(tmp_path: Path) -> None:
    """Which the fallback's, where some regions are left to it, does not."""
    made = fakes.workload(bench(tmp_path / "run"))
    steps: dict[Region, Step] = {Region.MOE: Noting()}  # type: ignore[dict-item]
    made.arms[STAMPED.name] = fakes.dispatched(STAMPED, steps)
    assert made.read_stamps(STAMPED.name) is NOTED


def test_a_backend_that_says_so_must_note_something(tmp_path: Path) -> None:
    """The line names the arm."""
    made = fakes.workload(bench(tmp_path / "run"))
    with pytest.raises(BackendError) as caught:
        made.read_stamps(STAMPED.name)
    assert str(caught.value) == (
        "paper (stamps): its step has no read_stamps, and it says that it has stamps"
    )
