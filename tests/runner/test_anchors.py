import math
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope import study as plans
from layerscope.analyze.statistics import incomplete_rounds, pass_times
from layerscope.errors import RecordError
from layerscope.run import load
from layerscope.runner.anchors import measure
from layerscope.runner.bench import Bench
from layerscope.runner.rounds import Phase
from layerscope.schema import SAMPLES
from layerscope.study import Study
from tests.runner import fakes
from tests.runner.fakes import AGAIN, REFERENCE, Script, ScriptedPlayer, ScriptedReplay

PASS_NS = {"reference": 1_000, "fused": 700, AGAIN: 1_001}
TIME_IS_UP = Phase("anchor", 0, -math.inf)
NO_DEADLINE = Phase("anchor", 0, math.inf)


def steady(arm: str, passes: int, _: int) -> int:
    """50 ns a launch, and the same for every pass."""
    return 50 + passes * PASS_NS[arm]


def alternating(arm: str, amplitude_ns: int) -> Script:
    """`arm` is slower by `amplitude_ns` a pass in every second round."""

    def script(name: str, passes: int, index: int) -> int:
        extra_ns = amplitude_ns * (index % 2) if name == arm else 0
        return steady(name, passes, index) + passes * extra_ns

    return script


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A bench of a study and a script, without a least number of rounds."""
    monkeypatch.setattr(plans, "MIN_ROUNDS", 1)

    def make(study: Study | None = None, script: Script = steady) -> Bench:
        return fakes.bench(study or fakes.study(), tmp_path / "run", script)

    return make


def player(bench: Bench) -> ScriptedPlayer:
    """The bench's player, as what it is."""
    assert isinstance(bench.player, ScriptedPlayer)
    return bench.player


def replays(bench: Bench) -> list[ScriptedReplay]:
    """The bench's replays, as what they are."""
    return [r for r in bench.replays.values() if isinstance(r, ScriptedReplay)]


def samples(bench: Bench) -> pl.DataFrame:
    """All samples that the run has."""
    return bench.writer.finish("partial").samples


def rounds_made(bench: Bench, phase: Phase = NO_DEADLINE) -> int:
    """How many rounds `measure` makes."""
    measure(bench, phase)
    return int(samples(bench)["round"].n_unique())


def test_every_replay_of_every_round_is_a_sample(make: Make) -> None:
    """Rounds in random order, each with one step and one look at the clocks."""
    bench = make(fakes.study(samples=6))
    measure(bench, Phase("after", 0, -math.inf))
    order = [
        *(("fused", 1), ("fused", 2), ("reference", 2), ("reference", 1)),
        *((AGAIN, 2), (AGAIN, 1)),
        *(("fused", 2), ("fused", 1), ("reference", 1), ("reference", 2)),
        *((AGAIN, 2), (AGAIN, 1)),
    ]
    expected = pl.DataFrame(
        {
            "phase": ["after"] * 12,
            "arm": [arm for arm, _ in order],
            "experiment": ["captured"] * 12,
            "capture": [0] * 12,
            "round": [0] * 6 + [1] * 6,
            "position": [0, 1, 2, 3, 4, 5] * 2,
            "passes": [passes for _, passes in order],
            "step": [0] * 6 + [1] * 6,
            "duration_ns": [
                *(750, 1_450, 2_050, 1_050, 2_052, 1_051),
                *(1_450, 750, 1_050, 2_050, 2_052, 1_051),
            ],
            "required_bytes": [10, 20, 20, 10, 20, 10, 22, 11, 11, 22, 22, 11],
            "sm_clock_mhz": [1_980] * 6 + [1_979] * 6,
            "memory_clock_mhz": [3_201] * 12,
            "temperature_c": [40] * 12,
            "power_mw": [None] * 12,
            "throttle_reasons": [0] * 12,
        },
        schema=SAMPLES,
    )
    assert_frame_equal(load(bench.writer.path).samples, expected)


def test_the_step_of_a_sample_is_the_one_its_replay_ran(make: Make) -> None:
    """The host's count agrees with the device's, round by round, phase by phase."""
    bench = make(fakes.study(samples=15))
    for name in ("anchor", "after"):
        measure(bench, Phase(name, 0, -math.inf))
    (seen,) = {id(r.seen): r.seen for r in replays(bench)}.values()
    assert samples(bench)["step"].to_list() == seen
    # Five rounds end with step 0, so that the second phase goes on with step 1.
    assert seen == [step for step in (0, 1, 0, 1, 0) * 2 for _ in range(6)][:30] + [
        step for step in (1, 0, 1, 0, 1) for _ in range(6)
    ]


def test_one_round_is_in_flight_while_the_one_before_is_read(make: Make) -> None:
    """The device never idles for the host, and at the end everything is read."""
    bench = make(fakes.study(samples=9))
    measure(bench, TIME_IS_UP)
    assert player(bench).events == [
        *("enqueue 0", "enqueue 1", "wait 0", "enqueue 2", "wait 1", "wait 2"),
    ]


def test_arms_without_noise_need_the_planned_rounds_and_one_look(make: Make) -> None:
    """The interval is looked at every eighth round, never before the plan is met."""
    assert rounds_made(make(fakes.study(samples=6))) == 8


def test_a_plan_beyond_a_look_is_met_in_full(make: Make) -> None:
    """Passes are promised; a small interval is no reason to make fewer."""
    assert rounds_made(make(fakes.study(samples=3 * 17))) == 24


@pytest.mark.parametrize("noisy", ["fused", AGAIN])
def test_rounds_go_on_until_every_paired_interval_is_small(
    make: Make, noisy: str
) -> None:
    """Half of 1.96 standard errors: 6 ns in 1000 need more than 15 of the 23 rounds."""
    bench = make(script=alternating(noisy, 6))
    assert rounds_made(bench) == 24


def test_noise_that_all_arms_share_in_a_round_is_no_noise(make: Make) -> None:
    """Differences are paired by round: a slow round is slow for all."""

    def drifting(arm: str, passes: int, index: int) -> int:
        return steady(arm, passes, 0) + 500 * passes * (index % 3)

    assert rounds_made(make(script=drifting)) == 8


def test_a_base_alone_is_compared_with_its_second_capture(make: Make) -> None:
    """With one arm the A/A interval decides."""
    study = fakes.study(REFERENCE)
    assert rounds_made(make(study, alternating(AGAIN, 6))) == 24


def test_the_time_budget_ends_what_the_interval_does_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round begins after the deadline, and none is cut short by it."""
    bench = make(script=alternating("fused", 500))
    # Every round takes a second, from second 1 on.
    monkeypatch.setattr(time, "monotonic", lambda: float(player(bench).round))
    assert rounds_made(bench, Phase("anchor", 0, 11.0)) == 11
    assert incomplete_rounds(samples(bench)).is_empty()


def test_the_planned_rounds_are_made_whatever_the_time(make: Make) -> None:
    """A budget that is too small costs samples beyond the plan, not the plan."""
    assert rounds_made(make(fakes.study(samples=3 * 5)), TIME_IS_UP) == 5


def test_samples_are_saved_as_time_goes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few seconds what was read so far is on disk, in case nothing follows."""
    bench = make(fakes.study(samples=3 * 12))
    monkeypatch.setattr(time, "monotonic", lambda: float(player(bench).round))
    saved: list[int] = []
    checkpoint = bench.writer.checkpoint

    def watched() -> None:
        checkpoint()
        saved.append(load(bench.writer.path).samples["round"].n_unique())

    monkeypatch.setattr(bench.writer, "checkpoint", watched)
    measure(bench, TIME_IS_UP)
    assert saved == [5, 11, 12]


def interrupt_at(bench: Bench, event: str) -> None:
    """Let the player be interrupted, once, when it notes `event`."""

    class Events(list[str]):
        def append(self, item: str, /) -> None:
            super().append(item)
            if item == event and self.count(event) == 1:
                raise KeyboardInterrupt

    player(bench).events = Events()


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        ("enqueue 0", 0),
        ("enqueue 3", 3),  # rounds 0 to 2 were enqueued whole
        ("wait 2", 4),  # round 3 was in flight, and round 2 is waited for again
    ],
)
def test_an_interruption_loses_no_round_that_was_enqueued(
    make: Make, event: str, kept: int
) -> None:
    """Pending rounds are read before the interruption goes on; none comes twice."""
    bench = make(fakes.study(samples=3 * 9))
    interrupt_at(bench, event)
    with pytest.raises(KeyboardInterrupt):
        measure(bench, NO_DEADLINE)
    found = samples(bench)
    assert found["round"].to_list() == [n for n in range(kept) for _ in range(6)]
    assert incomplete_rounds(found).is_empty()


def test_a_checkpoint_that_fails_loses_no_round(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is told of every round, so that a later attempt can write them."""
    bench = make(fakes.study(samples=3 * 9))
    monkeypatch.setattr(time, "monotonic", lambda: float(player(bench).round))

    def full() -> None:
        msg = "disk full"
        raise RecordError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(bench.writer, "checkpoint", full)
        with pytest.raises(RecordError, match="disk full"):
            measure(bench, TIME_IS_UP)
    assert samples(bench)["round"].n_unique() == 6


def test_samples_of_scripted_passes_give_back_the_script(make: Make) -> None:
    """The slope over the lengths is the time of a pass, without that of the launch."""
    bench = make()
    measure(bench, TIME_IS_UP)
    times = pass_times(samples(bench)).select("arm", "pass_ns").unique()
    assert dict(times.iter_rows()) == PASS_NS
