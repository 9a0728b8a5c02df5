import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from layerscope.experiment import SERIAL, Experiment
from layerscope.record.recorder import Recorded
from layerscope.run_header import KernelCost
from layerscope.runner import phases
from layerscope.runner.bench import Bench
from layerscope.runner.editing import Needed, every
from tests import settling
from tests.runner import fakes

COST = KernelCost(blocks=132, added_ns=130.0, low_ns=120.0, high_ns=140.0)


@pytest.mark.parametrize(("known", "times"), [([], 1), ([COST], 0)])
def test_what_the_recorder_costs_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[KernelCost], times: int
) -> None:
    """A header that has it already keeps it."""
    calibrated: list[bool] = []
    for name in ("_fresh", "record", "measure"):
        monkeypatch.setattr(phases, name, lambda *_, **__: None)
    monkeypatch.setattr(
        phases, "calibrate_recorder", lambda *_: calibrated.append(True)
    )
    bench = fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)
    bench.writer.header.observer_costs = known
    recorder = fakes.ScriptedRecorder(lambda launch: Recorded(launch, (), {}))
    phases._record(bench, recorder, lambda _: None)
    assert len(calibrated) == times
    assert bench.writer.header.observer_costs == known


def test_launches_are_settled_before_what_is_timed_and_noted_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made graphs: a capture, or finding out what the recorder costs."""
    order: list[str] = []

    def notes(name: str) -> Callable[..., list[str]]:
        def called(*_: object, **__: object) -> list[str]:
            order.append(name)
            return []

        return called

    monkeypatch.setattr(phases, "settled", settling.noting(order))
    for name in ("record", "measure", "calibrate_recorder", "knock_out"):
        monkeypatch.setattr(phases, name, notes(name))
    monkeypatch.setattr(phases, "note_stamps", notes("stamps"))
    for name in ("check_arms", "check_bits", "check_variants", "_prepare_experiments"):
        monkeypatch.setattr(phases, name, lambda *_, **__: [])
    for name in ("try_waiting_arms", "try_ahead"):
        monkeypatch.setattr(phases, name, lambda _: None)
    monkeypatch.setattr(Bench, "capture", notes("capture"))
    monkeypatch.setattr(fakes.ScriptedWorkload, "region_bytes", lambda _: [])
    study = replace(fakes.study(), stamp_arms=(fakes.FUSED,))
    bench = fakes.bench(study, tmp_path / "run", lambda *_: 1)
    recorder = fakes.ScriptedRecorder(lambda launch: Recorded(launch, (), {}))
    phases.run_phases(bench, recorder, lambda phase: order.append(f"note {phase}"))
    assert order == [
        *("capture", "settled", "measure", "note anchor", "knock_out", "let go"),
        *("settled", "stamps", "let go"),
        *("capture", "settled", "record", "let go", "calibrate_recorder"),
        *("settled", "measure", "note after", "let go"),
    ]


def test_trying_experiments_takes_no_time_from_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have to wait for another process, as building has to for a compiler."""
    now_s = 100.0

    def wait(bench: Bench) -> None:
        nonlocal now_s
        assert bench.deadline_s == 110.0
        now_s += 12.5

    bench = fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)
    bench.deadline_s = 110.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(phases, "try_experiments", wait)
    phases._prepare_experiments(bench)
    assert bench.deadline_s == 122.5
    assert bench.writer.header.phases["trying experiments"] == 12.5


@pytest.mark.parametrize(("tried", "times"), [((SERIAL,), 1), ((), 0)])
def test_what_is_older_than_edited_graphs_is_captured_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: tuple[Experiment, ...],
    times: int,
) -> None:
    """It would be slower than that of later captures, which is made beside them."""
    made: list[tuple[int, Needed]] = []

    def note(_: Bench, capture: int, lengths: None, needed: Needed) -> None:
        assert lengths is None
        made.append((capture, needed))

    def allow(bench: Bench) -> None:
        if tried:
            bench.experiments["reference"] = tried

    bench = fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)
    monkeypatch.setattr(phases, "try_experiments", allow)
    monkeypatch.setattr(phases, "_fresh", note)
    phases._prepare_experiments(bench)
    assert made == [(0, every)] * times
