import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import layerscope
from layerscope import InputError, MeasurementError, Run
from layerscope import run as runs
from layerscope.analyze.verdicts import Verdict
from layerscope.run import DRAFT_FOLDER, HEADER_FILE
from tests import edited, handmade
from tests.ingest import paper_runs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run() -> Run:
    """The hand-made run with experiments."""
    return Run.of(edited.run())


def test_a_run_is_the_plain_run_with_a_face(tmp_path: Path) -> None:
    """What `load` gives has the plain run's frames, and is taken for one anywhere."""
    folder = handmade.write(tmp_path / "run")
    loaded, plain = layerscope.load(str(folder)), runs.load(folder)
    assert isinstance(loaded, runs.Run)
    assert_frame_equal(loaded.kernels, plain.kernels)
    assert_frame_equal(loaded.samples, plain.samples)
    assert (loaded.header, loaded.path) == (plain.header, plain.path)
    assert repr(loaded) == repr(plain)


def test_a_draft_has_a_face_too(tmp_path: Path) -> None:
    """What a run holds can be looked at as the run can."""
    folder = handmade.write(tmp_path / "run")
    handmade.write(folder / DRAFT_FOLDER)
    draft = layerscope.load(folder).draft
    assert isinstance(draft, Run)
    assert draft.path == folder / DRAFT_FOLDER


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """The refusal is that of the plain `load`."""
    with pytest.raises(InputError, match=f"holds no {HEADER_FILE}"):
        layerscope.load(tmp_path)


def test_regions_are_a_frame(run: Run) -> None:
    """Mean shares of every graph, captured and serial, that add up to the pass."""
    sums = run.regions.group_by("arm", "experiment").agg(pl.col("share_mean_ns").sum())
    assert_frame_equal(
        sums.sort("arm", "experiment"),
        pl.DataFrame(
            {
                "arm": ["fused", "fused", "reference", "reference (A/A)"],
                "experiment": ["captured", "serial", "captured", "captured"],
                "share_mean_ns": [30_500.0, 34_000.0, 41_000.0, 41_000.0],
            }
        ),
    )


def test_a_comparison_is_the_difference_and_its_causes(run: Run) -> None:
    """10 µs of 40, of which overlap is 4, with the verdict of `layerscope compare`."""
    found = run.compare("reference", "fused")
    assert found.difference.value == -10_000
    assert found.relative == -0.25
    assert found.verdict is Verdict.FASTER
    assert found.ledger.change.value == -10_000
    assert found.ledger.lines[0].change.value == -4_000
    assert repr(found).startswith(
        "<Comparison fused against unfused torch (reference): −10.0 µs (−25.0 %, 95 % "
    )
    assert "ledger of fused, by experiments" in found._repr_html_()


def test_arms_that_are_not_there_are_refused(run: Run) -> None:
    """Everything that takes an arm names those that there are."""
    known = r"it has reference, fused, reference \(A/A\)"
    for ask in (
        lambda: run.compare("reference", "fast"),
        lambda: run.timeline("fast"),
        lambda: run.plot.ledger("fast"),
        lambda: run.plot.timeline(["fast"]),
    ):
        with pytest.raises(InputError, match=known):
            ask()


def test_a_run_shows_its_report(run: Run) -> None:
    """In a notebook, a run is its headlines and tables."""
    html = run._repr_html_()
    assert "<strong>paper-moe, layer 0</strong>" in html
    assert "regions of fused, a profiled pass" in html


def test_a_timeline_is_what_was_recorded_of_one_graph(run: Run) -> None:
    """The kernels of an arm's graph, and in a notebook a picture of its median pass."""
    serial = run.timeline("fused", "serial")
    rows = run.kernels.filter(
        pl.col("arm") == "fused", pl.col("experiment") == "serial"
    )
    assert_frame_equal(serial.kernels, rows)
    assert repr(serial) == f"<Timeline: {rows.height} kernels, 0 ranges, on Paper GPU>"
    html = serial._repr_html_()
    assert html.startswith(
        f"<p>{rows.height} kernels, 0 ranges, on Paper GPU</p>\n<svg"
    )
    assert "median pass of each arm" in html


def test_graphs_that_were_not_recorded_are_refused(run: Run) -> None:
    """The refusal names what was recorded of the arm."""
    with pytest.raises(
        InputError, match="'serial' of reference was not recorded; capt"
    ):
        run.timeline("reference", "serial")


def test_a_timeline_without_passes_is_told_in_words(run: Run) -> None:
    """Where no pass is whole, there is no picture."""
    short = run.timeline("fused")
    one = short.kernels.filter(pl.col("pass_index") == 1)
    assert "<svg" not in replace(short, kernels=one)._repr_html_()


def test_loading_and_showing_need_no_torch(tmp_path: Path) -> None:
    """A run is read, compared, drawn and shown where torch is not installed."""
    handmade.write(tmp_path / "run")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import layerscope\n"
        f"run = layerscope.load({str(tmp_path / 'run')!r})\n"
        "run._repr_html_(), run.compare('reference', 'fused')._repr_html_()\n"
        "run.plot.timeline().to_dict(); print('shown')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "shown\n"


def test_without_the_extra_reports_are_shown_and_charts_ask_for_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only charts need altair; what needs it says what to install."""
    monkeypatch.delitem(sys.modules, "layerscope.notebook.plots", raising=False)
    monkeypatch.setitem(sys.modules, "altair", None)
    for name in [
        name for name in sys.modules if name.startswith("layerscope.render.charts")
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MeasurementError, match=r"pip install 'layerscope\[charts\]'"):
        _ = run.plot
    assert run._repr_html_()


@pytest.fixture
def traced(tmp_path: Path) -> Run:
    """A run that was made of a trace, from disk."""
    return layerscope.load(paper_runs.write(tmp_path / "run"))


def test_a_run_of_a_trace_shows_itself(traced: Run) -> None:
    """Regions, and a page in which everything is observed."""
    assert traced.regions["region"].unique().sort().to_list() == [
        "attention",
        "mlp",
        "unassigned",
    ]
    page = traced._repr_html_()
    assert "34.00 µs a layer" in page
    assert "95 %" not in page


def test_arms_of_a_trace_differ_without_a_verdict(traced: Run) -> None:
    """The change is told, how well it is known is not."""
    found = traced.compare("decode", "prefill")
    assert found.difference.value == 315_000
    assert found.relative == pytest.approx(315 / 34)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason == (
        "observed in a trace, which says nothing of how much it varies"
    )
    assert "prefill against decode, observed: a layer 349.0 µs" in repr(found)
    assert "±" not in found._repr_html_()


def test_an_arm_of_a_trace_has_a_timeline(traced: Run) -> None:
    """As any other."""
    assert traced.timeline("decode").kernels.height == 28
    with pytest.raises(InputError, match="has no arm 'verify'; it has decode, prefill"):
        traced.timeline("verify")


def test_a_run_against_another_shows_itself(traced: Run) -> None:
    """Of traces what was observed, of measured runs their anchors."""
    other = Run.of(paper_runs.run("other", scale=2))
    found = traced.compare_run(other, ("decode", "decode"))
    assert repr(found).startswith("<RunComparison decode of other against decode of ")
    assert "ledger of decode of other, observed" in found._repr_html_()
    measured = Run.of(handmade.run())
    assert "no difference" in measured.compare_run(measured)._repr_html_()
