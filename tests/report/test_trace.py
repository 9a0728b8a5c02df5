from collections.abc import Iterable

import pytest

from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from layerscope.errors import InputError
from layerscope.report import Report, Table
from layerscope.report.trace import TraceView, trace_report
from layerscope.trace import TraceNote
from tests.analyze.placed_kernels import Row, kernel, placed, trace
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
    """Where kernels are missing the verdict is unknown, says why, and has no parts."""
    notes = (TraceNote(kind="untrusted", what="lost", about="kernels missing"),)
    report = trace_report(traced.swept(notes), TraceView())
    assert told(report.headlines)["2 decode steps"] == "unknown: lost"
    assert not [each for each in report.tables if each.title.startswith("where")]
    assert "; what was recorded ran for" in told(report.facts)["time"]
    assert any(each.startswith("kernels are missing") for each in report.notes)


def test_a_device_without_steps() -> None:
    """Where no steps were found, all of the device is judged, and that is said."""
    report = trace_report(traced.without_steps(), TraceView())
    label = "no steps found: the whole device"
    assert [fact.label for fact in report.headlines] == ["trust", label]
    assert told(report.headlines)[label].startswith("computes (computing 97.3 %")
    assert told(report.facts)["steps"].startswith("none found")
    assert told(report.facts)["no layers"] == "nothing repeats"
    assert {row[0] for row in table(report, "where the time goes").rows} == {label}
    rows = table(report, "whole device by region").rows
    whole = 2 * traced.STEP_NS + 1_000
    assert rows[-1] == ("total", None, 14, whole, 5_000, 190_000, 12_000)
    assert not [each for each in report.tables if each.title.startswith("steps")]


def test_overlaps_that_a_tool_rewrote() -> None:
    """Overlaps that the tool has taken away are not shown as if there were none."""
    notes = (TraceNote(kind="untrusted", what="moved", about="overlaps rewritten"),)
    report = trace_report(traced.swept(notes), TraceView())
    assert not [each for each in report.tables if each.title.startswith("overlap")]


def varied(*variants: tuple[str, str, str]) -> SweptTrace:
    """Steps of one kind after another: (kind, variant, kernels), a letter a kernel.

    A capital is a copy; kernels of one µs follow each other at once.
    """
    rows: list[Row] = []
    counts = dict.fromkeys((kind for kind, _, _ in variants), 0)
    steps = {kind: number for number, kind in enumerate(counts)}
    for kind, variant, kernels in variants:
        place = {"step": steps[kind], "step_kind": kind, "layer": counts[kind]}
        place |= {"variant": variant, "region": "attention"}
        counts[kind] += 1
        for name in kernels:
            own = place | {"name": name.lower()}
            own["kind"] = "copy" if name.isupper() else "kernel"
            rows.append(kernel(1_000 * len(rows), 1_000, **own))
    return sweep_trace(trace(rows), placed(rows))


def test_variants_and_what_they_differ_by() -> None:
    """Kernels that some variant lacks come first, then those it runs more often."""
    report = trace_report(
        varied(
            *[("decode", "A", "abc")] * 2,
            *[("decode", "B", "abbd"), ("prefill", "C", "x"), ("prefill", "C", "x")],
        ),
        TraceView(),
    )
    assert told(report.facts)["layers"].startswith(
        "decode step: 3 a step, of variants A 2, B 1; prefill step: 2 a step, all alike"
    )
    found = table(report, "kernels by which")
    assert found.title == "kernels by which layers of a decode step differ"
    assert [column.title for column in found.columns[2:]] == ["A", "B"]
    assert found.rows == (
        ("attention", "c", 1, None),
        ("attention", "d", None, 1),
        ("attention", "b", 1, 2),
    )


def test_variants_of_equal_kernels() -> None:
    """No kernel tells them apart; a note says what does."""
    report = trace_report(
        varied(*[("decode", "A", "abc")] * 2, ("decode", "B", "acb")), TraceView()
    )
    assert not [each for each in report.tables if each.title.startswith("kernels by")]
    note = "layers B of a decode step run the kernels of layers A in another order"
    assert note in report.notes


def test_only_variants_that_are_shown_are_told() -> None:
    """Others are of other steps; a rare one is counted as often as it is there."""
    many = [("decode", "A", "abc")] * 30
    found = varied(*many, ("decode", "C", "ab"), ("prefill", "B", "abd"))
    report = trace_report(found, TraceView(step_kind="decode"))
    layers = told(report.facts)["layers"]
    assert layers.startswith("decode step: 31 a step, of variants A 30, C 1;")
    columns = table(report, "kernels by which").columns
    assert [column.title for column in columns[2:]] == ["A", "C"]


def test_medians_do_not_add_up() -> None:
    """A note says so where layers are told in medians, and only there."""
    words = "medians do not add up, neither over regions nor to share"
    several = trace_report(traced.swept(), TraceView()).notes
    single = trace_report(varied(("decode", "A", "abc")), TraceView()).notes
    assert [note.startswith(words) for note in several].count(True) == 1
    assert not any(note.startswith(words) for note in single)


def test_counts_with_copies_say_so() -> None:
    """A count of all that ran is called kernels only where that is so."""
    for title, kernels in (("kernels", "abc"), ("kernels + copies", "abC")):
        report = trace_report(varied(("decode", "A", kernels)), TraceView())
        columns = [column for each in report.tables for column in each.columns]
        assert {each.title for each in columns if each.key == "kernels"} == {title}


def test_unassigned_kernels_add_up_to_those_of_steps() -> None:
    """What is outside of steps, in no table of these, is not among them."""
    rows = [
        kernel(0, 1_000, name="early"),
        kernel(1_000, 300, name="copied", kind="copy", step=0, step_kind="decode"),
        kernel(1_800, 500, name="some", step=0, step_kind="decode"),
    ]
    report = trace_report(sweep_trace(trace(rows), placed(rows)), TraceView())
    found = table(report, "kernels of no known region")
    assert found.title == "kernels of no known region, in 1 step"
    assert found.rows == (("some", 1, 500), ("copied", 1, 300))
    parts = table(report, "decode step by region").rows
    assert parts[0] == ("unassigned", "outside", 2, 1_300, 500, 800, 0)


def test_names_of_a_table_differ() -> None:
    """Kernels whose short names are equal are told with what differs."""
    full = "void elementwise_kernel<4, at::BinaryFunctor<float, {}<float> > >(int)"
    names = [full.format(each) for each in ("MulFunctor", "DivFunctor")]
    known = {"step": 0, "step_kind": "decode"}
    rows = [kernel(2_000 * at, 1_000, name=names[at % 2], **known) for at in range(4)]
    report = trace_report(sweep_trace(trace(rows), placed(rows)), TraceView())
    for title in ("gaps by the kernel", "kernels of no known region"):
        found = [row[0] for row in table(report, title).rows]
        assert len(set(found)) == len(found) == 2
        assert all(str(name).endswith("Functor") for name in found)
