from dataclasses import replace

from layerscope.analyze.swept_trace import SweptTrace
from layerscope.report.trace import TraceView
from layerscope.report.trace_ranks import ranks_report
from layerscope.trace import TraceNote
from tests.report import traced


def ranks(*numbers: int | None, notes: tuple[TraceNote, ...] = ()) -> list[SweptTrace]:
    """The trace by hand, as told by so many ranks."""
    swept = traced.swept(notes)
    return [
        replace(swept, trace=replace(swept.trace, rank=number)) for number in numbers
    ]


def test_a_row_a_rank() -> None:
    """Every rank has a row of its device, one of its steps, and a verdict."""
    report = ranks_report(ranks(3, 5), TraceView())
    assert report.title == "2 traces: rank 3 to rank 5"
    span = 2 * traced.STEP_NS + 1_000
    gaps = 2 * 2_000 + 1_000
    devices, steps = report.tables
    assert devices.rows == tuple(
        (name, 14, span, span - gaps, gaps, 0, 0) for name in ("rank 3", "rank 5")
    )
    assert steps.rows[0] == (
        *("rank 3", "2 decode steps", 3.0, 7.0),
        *(traced.STEP_NS, 2_000.0, 500.0),
    )
    assert [fact.label for fact in report.headlines] == ["trust", "rank 3", "rank 5"]


def test_traces_that_do_not_tell_their_ranks() -> None:
    """Without ranks, or with one twice, traces go by place and file, unaligned."""
    for numbers in ((None, None), (0, 0), (0, None)):
        report = ranks_report(ranks(*numbers), TraceView())
        assert report.tables[0].rows[1][0] == "1: handmade.json"
        assert report.parts == ()
        assert report.notes[-1] == (
            "these traces do not say that they are different ranks of one job: not "
            "aligned"
        )


def test_ranks_of_different_jobs_are_none_of_one() -> None:
    """Jobs of 2 and of 4 ranks: nothing is aligned, though numbers differ."""
    one, other = ranks(0, 1)
    traces = [
        replace(each, trace=replace(each.trace, ranks=size))
        for each, size in ((one, 2), (other, 4))
    ]
    report = ranks_report(traces, TraceView())
    assert report.parts == ()
    assert report.tables[0].rows[1][0] == "1: handmade.json"


def test_absent_ranks_are_told() -> None:
    """Two of 128: the part on their clocks says so first."""
    traces = [
        replace(each, trace=replace(each.trace, ranks=128)) for each in ranks(0, 1)
    ]
    (part,) = ranks_report(traces, TraceView()).parts
    assert part.warnings[0].startswith("2 of 128 ranks given: ")


def test_notes_of_several_traces() -> None:
    """Equal notes are told once, with how many traces have them."""
    notes = (TraceNote(kind="dropped", what="odd kernels", count=2),)
    report = ranks_report([*ranks(0, notes=notes), *ranks(1)], TraceView())
    fact = report.headlines[0]
    assert (fact.label, fact.text) == ("dropped", "odd kernels, in 1 of 2 traces (2)")


def test_ranks_on_one_clock() -> None:
    """How the ranks' clocks fit is a part of the report."""
    (part,) = ranks_report(ranks(0, 1), TraceView()).parts
    assert part.title == "ranks on one clock, observed"
