from pathlib import Path

import pytest

from layerscope.record.recorder import Recorded
from layerscope.run_header import KernelCost
from layerscope.runner import phases
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
    phases._record(bench, recorder)
    assert len(calibrated) == times
    assert bench.writer.header.observer_costs == known
