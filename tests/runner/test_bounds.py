from pathlib import Path

import pytest

from layerscope.layers.spec import LayerSpec
from layerscope.run_header import Bound, ReadCost
from layerscope.runner import bounds
from layerscope.runner.bench import Bench
from layerscope.runner.limit_times import Effort
from tests.runner import fakes
from tests.runner.editable import editable_bench

BOUND = Bound(
    arm="", name="no PDL", pass_ns=1.0, low_ns=1.0, high_ns=1.0, kernels=1, bytes=1
)
READ = ReadCost(bytes=1, duration_ns=1.0)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """On a device that can measure limits, in no time."""
    monkeypatch.setattr(bounds, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(bounds, "measure_limits", lambda *_: ((BOUND,), (READ,)))
    return editable_bench(fakes.study(), tmp_path)


def spec_of(bench: Bench) -> LayerSpec:
    """The layer of its study."""
    assert isinstance(bench.study.spec, LayerSpec)
    return bench.study.spec


def test_limits_are_measured_after_a_whole_study(bench: Bench) -> None:
    """Also where its time budget has ended by then: they are a part of the plan."""
    bench.deadline_s = 0.0
    bounds.bound(bench, spec_of(bench), lambda _: None)
    header = bench.writer.header
    assert (header.bounds, header.reads, header.warnings) == ([BOUND], [READ], [])


def test_limits_note_how_fast_kernels_are_launched_beside_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its note is the one that they are given."""
    noted: list[str] = []

    def measure(*given: object) -> tuple[tuple[Bound, ...], tuple[ReadCost, ...]]:
        (effort,) = (each for each in given if isinstance(each, Effort))
        effort.note("reads")
        return (BOUND,), (READ,)

    monkeypatch.setattr(bounds, "measure_limits", measure)
    bounds.bound(bench, spec_of(bench), noted.append)
    assert noted == ["reads"]


def test_a_study_that_was_cut_has_no_limits(bench: Bench) -> None:
    """It says so."""
    bench.is_cut = True
    bounds.bound(bench, spec_of(bench), lambda _: None)
    header = bench.writer.header
    assert (header.bounds, header.warnings) == (
        [],
        ["limits were not measured: the time budget had ended"],
    )


def test_the_mean_of_distinct_experts_is_rounded() -> None:
    """Over steps and passes; a dense layer has none."""
    assert bounds.mean_distinct([[34, 47], [41, 41]]) == 41
    assert bounds.mean_distinct([]) is None
