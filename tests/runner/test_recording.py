from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import MeasurementError
from layerscope.record.recorder import Event, Launch, Place, Recorded
from layerscope.regions import Region
from layerscope.run_header import Drop
from layerscope.runner.bench import Bench
from layerscope.runner.recording import record
from layerscope.schema import KERNELS
from tests.runner import fakes
from tests.runner.fakes import AGAIN, ScriptedRecorder

ARMS = ("reference", "fused", AGAIN)
PLACES = {0: Place(-1, Region.OTHER), 1: Place(0, Region.MOE)}


def whole(launch: Launch) -> Recorded:
    """A head of 5 ns and one kernel of 20 ns, wherever the launch is."""
    start_ns = 1_000 * (1 + launch.round)
    events = (
        Event(0, "fill", "advance", 7, start_ns, start_ns + 5),
        Event(1, "kernel", launch.arm, 7, start_ns + 6, start_ns + 26),
    )
    return Recorded(launch, events, PLACES, ((0, 1),))


def losing(arm: str, *rounds: int) -> Callable[[Launch], Recorded]:
    """In some rounds of `arm` the kernel is lost."""

    def script(launch: Launch) -> Recorded:
        full = whole(launch)
        if launch.arm != arm or launch.round not in rounds:
            return full
        return Recorded(launch, full.events[:1], PLACES)

    return script


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Replays of up to four passes, of which two can be used; ten rounds."""
    study = fakes.study(samples=19, lengths=(2, 4))
    return fakes.bench(study, tmp_path / "run", lambda *_: 1)


def kernels(bench: Bench) -> pl.DataFrame:
    """All kernels that the run has."""
    return bench.writer.finish("partial").kernels


def test_every_arm_is_recorded_as_often_as_its_samples_need(bench: Bench) -> None:
    """The longest replay, once a round in a random order, in blocks of eight rounds."""
    recorder = ScriptedRecorder(whole)
    record(bench, recorder, capture=2)
    assert recorder.blocks == [8 * 3, 2 * 3]
    orders = set()
    for index in range(10):
        launches = recorder.launches[3 * index : 3 * index + 3]
        assert {(n.arm, n.round, n.capture) for n in launches} == {
            (arm, index, 2) for arm in ARMS
        }
        assert all(n.replay is bench.longest(n.arm) for n in launches)
        orders.add(tuple(launch.arm for launch in launches))
    assert len(orders) > 1
    assert bench.writer.header.drops == []


def test_the_order_of_arms_follows_from_the_seed(tmp_path: Path) -> None:
    """The same seed records in the same order, another in another."""
    orders = []
    for number, seed in enumerate((0, 0, 1)):
        study = fakes.study(samples=19, lengths=(2, 4), seed=seed)
        recorder = ScriptedRecorder(whole)
        record(fakes.bench(study, tmp_path / str(number), lambda *_: 1), recorder, 0)
        orders.append([launch.arm for launch in recorder.launches])
    assert orders[0] == orders[1] != orders[2]


def test_the_arms_of_a_round_share_their_step(bench: Bench) -> None:
    """Recording begins at step 0 and holds every step for one round of arms."""
    steps: list[int] = []

    def launched(launch: Launch) -> Recorded:
        launch.replay.launch()
        steps.append(int(bench.workload.feed.step))
        return whole(launch)

    record(bench, ScriptedRecorder(launched), 0)
    assert steps == [0, 0, 0, 1, 1, 1] * 5


def test_whole_replays_become_rows_of_the_run(bench: Bench) -> None:
    """One row a record; the round is the replay's number."""
    record(bench, ScriptedRecorder(whole), capture=2)
    head = {"pass_index": -1, "node": 0, "kind": "fill", "region": "other"}
    kernel = {"pass_index": 0, "node": 1, "kind": "kernel", "region": "moe"}
    rows = [
        row | {"arm": arm, "round": index, "replay": index}
        for arm in ARMS
        for index in range(10)
        for row in (
            head | {"name": "advance", "pass_start_ns": 0, "duration_ns": 5},
            kernel | {"name": arm, "pass_start_ns": 6, "duration_ns": 20},
        )
    ]
    same = {"experiment": "captured", "capture": 2, "stream": 7, "start_ns": 0}
    expected = pl.DataFrame([row | same for row in rows], schema=KERNELS)
    order = ("arm", "replay", "node")
    assert_frame_equal(kernels(bench).sort(order), expected.sort(order))


def test_replays_that_are_not_whole_are_dropped_and_counted(bench: Bench) -> None:
    """Only the bad replay goes; the other arms' replays of its round stay."""
    record(bench, ScriptedRecorder(losing("fused", 0, 3, 9)), 0)
    assert bench.writer.header.drops == [
        Drop(arm="fused", replays=3, reason="1 of 2 nodes were not recorded")
    ]
    kept = kernels(bench).filter(node=0)
    assert Counter(kept["arm"]) == {"reference": 10, "fused": 7, AGAIN: 10}
    assert kept.filter(arm="fused")["replay"].to_list() == [1, 2, 4, 5, 6, 7, 8]


def test_drops_of_several_kinds_are_told_apart(bench: Bench) -> None:
    """One entry an arm and reason, sorted."""

    def script(launch: Launch) -> Recorded:
        full = whole(launch)
        if launch.round == 0:
            return Recorded(launch, (*full.events, full.events[0]), PLACES)
        return losing("reference", 1, 2)(launch)

    record(bench, ScriptedRecorder(script), 0)
    twice = "a node was recorded twice"
    assert bench.writer.header.drops == [
        Drop(arm="fused", replays=1, reason=twice),
        Drop(arm="reference", replays=2, reason="1 of 2 nodes were not recorded"),
        Drop(arm="reference", replays=1, reason=twice),
        Drop(arm=AGAIN, replays=1, reason=twice),
    ]


def test_captures_share_the_samples_and_add_up_their_drops(tmp_path: Path) -> None:
    """Two captures record half the rounds each; drops of both are one count."""
    one = fakes.study(samples=19, lengths=(2, 4))
    two = msgspec.structs.replace(one, captures=2)
    bench = fakes.bench(two, tmp_path / "run", lambda *_: 1)
    for capture in (2, 3):
        recorder = ScriptedRecorder(losing("fused", 1))
        record(bench, recorder, capture)
        assert recorder.blocks == [5 * 3]
    assert [drop.replays for drop in bench.writer.header.drops] == [2]


def test_an_arm_of_which_no_replay_is_whole_is_refused(bench: Bench) -> None:
    """The line names the arm and its most frequent fault; the drops stay told."""
    with pytest.raises(MeasurementError) as raised:
        record(bench, ScriptedRecorder(losing("fused", *range(10))), 0)
    assert str(raised.value) == (
        "fused: none of 10 recorded replays is whole (1 of 2 nodes were not recorded)"
    )
    assert bench.writer.header.drops == [
        Drop(arm="fused", replays=10, reason="1 of 2 nodes were not recorded")
    ]


def test_records_that_belong_nowhere_refuse_the_arm(bench: Bench) -> None:
    """At the first block, of which nothing is kept."""

    def script(launch: Launch) -> Recorded:
        full = whole(launch)
        strays = launch.arm == "fused"
        return Recorded(launch, full.events, PLACES, (), int(strays))

    recorder = ScriptedRecorder(script)
    with pytest.raises(MeasurementError, match=r"^fused: 8 of 24 records belong to no"):
        record(bench, recorder, 0)
    assert recorder.blocks == [24]
    assert kernels(bench).is_empty()


def test_what_was_recorded_before_an_interruption_stays_with_its_drops(
    bench: Bench,
) -> None:
    """Whole blocks are kept, and the drops that belong to them."""

    def script(launch: Launch) -> Recorded:
        if launch.round == 8:
            raise KeyboardInterrupt
        return losing("fused", 1)(launch)

    with pytest.raises(KeyboardInterrupt):
        record(bench, ScriptedRecorder(script), 0)
    assert Counter(kernels(bench).filter(node=1)["arm"]) == {
        "reference": 8,
        "fused": 7,
        AGAIN: 8,
    }
    assert [drop.replays for drop in bench.writer.header.drops] == [1]


def test_replays_too_short_to_leave_out_their_ends_are_recorded_all_the_same(
    tmp_path: Path,
) -> None:
    """Without usable passes every replay counts as one sample."""
    bench = fakes.bench(fakes.study(samples=3), tmp_path / "run", lambda *_: 1)
    recorder = ScriptedRecorder(whole)
    record(bench, recorder, 0)
    assert recorder.blocks == [9]
