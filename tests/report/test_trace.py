from collections.abc import Iterable

import pytest

from layerscope.errors import InputError
from layerscope.report import Report, Table
from layerscope.report.trace import TraceView, trace_report
from layerscope.trace import TraceNote
from tests.report import traced


def table(report: Report, title: str) -> Table:
    """The table of that title."""
    return next(each for each in report.tables if each.title.startswith(title))


def told(facts: Iterable[object]) -> dict[str, str]:
    """Facts by their labels."""
    return {each.label: each.text for each in facts}  # type: ignore[attr-defined]


def test_the_header() -> None:
    """What can be trusted and the verdict come first, then what was read."""
    report = trace_report(traced.swept(), TraceView())
    assert [fact.label for fact in report.headlines] == ["trust", "2 decode steps"]
    assert told(report.headlines)["2 decode steps"] == (
        "computes (computing 97.3 %, gaps on the device 2.19 %, gaps between steps "
        "0.55 %)"
    )
    facts = told(report.facts)
    assert facts["device"] == "0, A GPU, sm_90"
    assert facts["layers"] == "3 a step, all alike; 94.7 % of the time of kernels"
    known = "known for 94.7 % of the time of kernels: by rule 94.7 %"
    assert facts["regions"] == known
    assert facts["overlap"].startswith("12.00 µs of kernels of one stream")


def test_steps() -> None:
    """Times of steps are without the gap before them, which stands apart."""
    rows = table(trace_report(traced.swept(), TraceView()), "steps").rows
    step, gaps = traced.STEP_NS, 2_000
    assert rows == (("2 decode steps", 3, 7, step, step, step, gaps, 500),)


def test_a_step_by_region() -> None:
    """Regions in layers and outside add up to the step."""
    found = table(trace_report(traced.swept(), TraceView()), "decode step by region")
    assert found.title == "decode step by region, mean of 2"
    assert found.rows == (
        ("attention", "layers", 3, 32_000, 2_000, 30_000, 0),
        ("moe", "layers", 3, 54_000, 0, 60_000, 6_000),
        ("unassigned", "outside", 1, 5_000, 0, 5_000, 0),
        ("total", None, 7, 91_000, 2_000, 95_000, 6_000),
    )


def test_a_layer() -> None:
    """A layer has the medians of its regions, and of itself as a whole."""
    found = table(trace_report(traced.swept(), TraceView()), "layer")
    assert found.title == "layer of a decode step by region, median of 6"
    assert [(*row[:3], *row[4:]) for row in found.rows] == [
        ("attention", 1, 11_000, 1_000, 10_000, 0),
        ("moe", 1, 18_000, 0, 20_000, 2_000),
        ("whole layer", 2, 29_000, 1_000, 30_000, 2_000),
    ]
    share = 32_000 / 3
    means = [row[3] for row in found.rows]
    assert means == pytest.approx([share, 18_000, share + 18_000])


def test_overlaps_and_gaps() -> None:
    """Overlaps have their edge and kind, gaps the kernel that ended them and why."""
    report = trace_report(traced.swept(), TraceView())
    assert table(report, "overlap on one stream").rows == (
        ("attend → experts", "moe", "consistent with PDL", 6, 6, 2_000, 2_000),
    )
    assert table(report, "gaps by the kernel").rows == (
        ("attend", "attention", "device", 4, 4_000, 1_000, 1_000),
        ("attend", "between steps", "late launch", 1, 1_000, 1_000, 1_000),
    )
    assert any("PDL" in note for note in report.notes)


def test_kernels_of_no_known_region() -> None:
    """They have a table, and a note says how to name their region."""
    report = trace_report(traced.swept(), TraceView())
    assert table(report, "kernels of no known region").rows == (("sample", 2, 10_000),)
    assert any("--rules" in note for note in report.notes)


def test_one_layer() -> None:
    """--layer lists the kernels of the step whose layer is the median one."""
    report = trace_report(traced.swept(), TraceView(layer=1))
    (found,) = report.tables
    of = "(of 2 decode steps, that of the median layer)"
    assert found.title == f"layer 1, variant A, step 0 {of}"
    assert found.rows == (
        (0, "attention", None, "attend", 1_000, 10_000, 0, "rule paper"),
        (1, "moe", None, "experts", 0, 20_000, 2_000, "rule paper"),
    )


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (TraceView(layer=9), "there is no layer 9; layers are 0 to 2"),
        (TraceView(device=3), "no kernel ran on device 3; --device is one of 0"),
        (
            TraceView(step_kind="prefill"),
            "there are no steps of kind 'prefill'; there are: decode",
        ),
    ],
)
def test_what_is_not_there(view: TraceView, reason: str) -> None:
    """What was asked for and is not there is told, with what is."""
    with pytest.raises(InputError, match=reason):
        trace_report(traced.swept(), view)


def test_notes_come_before_any_number() -> None:
    """Notes of a kind share a line, the gravest first; a whole file has no count."""
    notes = (
        TraceNote(kind="untrusted", what="times were rewritten"),
        TraceNote(kind="dropped", what="kernels without a time", count=1_200),
        TraceNote(kind="dropped", what="copies of other kernels", count=2),
    )
    report = trace_report(traced.swept(notes), TraceView())
    assert [(fact.label, fact.text) for fact in report.headlines[:2]] == [
        ("untrusted", "times were rewritten"),
        ("dropped", "kernels without a time (1,200); copies of other kernels (2)"),
    ]


def test_idle_time_that_nobody_knows() -> None:
    """Where kernels are missing the verdict is unknown, and says why."""
    what = "replays whose kernels the file lacks"
    notes = (TraceNote(kind="untrusted", what=what, count=3),)
    report = trace_report(traced.swept(notes), TraceView())
    assert told(report.headlines)["2 decode steps"].startswith(f"unknown: {what}")


def test_overlaps_that_a_tool_rewrote() -> None:
    """Overlaps that the tool has taken away are not shown as if there were none."""
    notes = (TraceNote(kind="untrusted", what="overlap was rewritten"),)
    report = trace_report(traced.swept(notes), TraceView())
    assert not [each for each in report.tables if each.title.startswith("overlap")]
