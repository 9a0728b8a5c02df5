import pytest

from layerscope.analyze.trace_gaps import gap_causes
from layerscope.analyze.trace_trust import Trust, coverage, trust_in
from layerscope.trace import NoteAbout, TraceNote
from tests.analyze.placed_kernels import Row, kernel, launched, placed, trace

Launch = tuple[int, str, int, int]


def trust(
    rows: list[Row], *launches: Launch, notes: tuple[TraceNote, ...] = ()
) -> Trust:
    """What is said of a trace of these kernels and calls."""
    caused = gap_causes(launched(rows, *launches))
    return trust_in(trace(rows, *launches, notes=notes), caused)


def said(found: Trust) -> list[tuple[str, str, int]]:
    """Its notes as tuples."""
    return [(note.kind, note.what, note.count) for note in found.notes]


def test_a_sound_trace() -> None:
    """Nothing is said of a trace that nothing speaks against."""
    found = trust([kernel(10, 5, correlation=1)], (1, "cudaLaunchKernel", 0, 5))
    assert found == Trust(notes=())


def test_lost_replays() -> None:
    """Where launches of graphs show no kernels, nobody knows when a device idled."""
    rows = [kernel(10, 5, correlation=1)]
    launches = [(each, "cudaGraphLaunch", 9 + each, 12) for each in (1, 2)]
    found = trust(rows, *launches)
    what = "launches of graphs without any kernel"
    assert said(found) == [("untrusted", what, 1)]
    assert found.why_no_idle == what
    assert found.notes[0].about == "kernels missing"


def test_few_lost_replays() -> None:
    """The ends of a trace may cut off some launches without spoiling all of it."""
    rows = [kernel(10 * each, 5, correlation=each) for each in range(1, 20)]
    launches = [(each, "cudaGraphLaunch", 10, 10) for each in range(1, 21)]
    found = trust(rows, *launches)
    assert said(found) == [("doubted", "launches of graphs without any kernel", 1)]
    assert not found.why_no_idle


def test_lost_nodes() -> None:
    """Kernels fewer than nodes times replays spoil what is said of idle time."""
    rows = [
        kernel(10, 5, correlation=1, graph_node=1),
        kernel(20, 5, correlation=1, graph_node=2),
        kernel(30, 5, correlation=2, graph_node=1),
    ]
    found = trust(rows, *((each, "cudaGraphLaunch", 0, 5) for each in (1, 2)))
    assert found.why_no_idle == "kernels fewer than graph nodes times replays"


@pytest.mark.parametrize(
    ("about", "field"),
    [("kernels missing", "why_no_idle"), ("overlaps rewritten", "why_no_overlap")],
)
def test_what_the_reader_says(about: NoteAbout, field: str) -> None:
    """What a format cannot tell by its nature is a reason, whatever its words."""
    note = TraceNote(kind="untrusted", what="so it is", about=about)
    found = trust([kernel(0, 5)], notes=(note,))
    assert found == Trust(notes=(note,), **{field: "so it is"})


def test_words_are_no_reason() -> None:
    """A note that only sounds like a reason is none."""
    what = "kernels the file lacks, whose launch is not in it, and which overlap"
    note = TraceNote(kind="untrusted", what=what)
    assert trust([kernel(0, 5)], notes=(note,)) == Trust(notes=(note,))


def test_kernels_without_launch_are_told_once() -> None:
    """What the reader has said of launches is not said again."""
    rows = [kernel(0, 5, correlation=1), kernel(10, 5)]
    told = TraceNote(kind="doubted", what="orphans", about="launches missing")
    launch = (1, "cudaLaunchKernel", -20, -10)
    assert trust(rows, launch, notes=(told,)).notes == (told,)
    (note,) = trust(rows, launch).notes
    assert note.about == "launches missing"


def test_doubts() -> None:
    """Clocks that differ, lost and shared launches, and kernels of no duration."""
    rows = [
        kernel(10, 5, correlation=1),
        kernel(20, 0, correlation=2),
        kernel(30, 5, correlation=3),
        kernel(40, 5, correlation=3),
        kernel(50, 5),
    ]
    launches = [
        (1, "hipLaunchKernel", 12, 14),
        (2, "hipLaunchKernel", 13, 14),
        (3, "hipLaunchKernel", 14, 16),
    ]
    early = "kernels that begin before their launch"
    assert said(trust(rows, *launches)) == [
        ("doubted", f"{early}: clocks of host and device differ", 1),
        ("doubted", "kernels whose launch is not in the trace", 1),
        ("doubted", "kernels that share a launch that is no graph's", 2),
        ("doubted", "kernels of no duration", 1),
    ]


def test_long_gaps_before_work_that_had_been_launched() -> None:
    """A millisecond of nothing where work was queued is odd; a late launch is not."""
    rows = [kernel(2_000_000 * each, 10, correlation=each) for each in range(3)]
    late = (2, "cudaLaunchKernel", 3_999_000, 3_999_900)
    launches = [(each, "cudaLaunchKernel", -20, -10) for each in range(2)]
    ((kind, what, count),) = said(trust(rows, *launches, late))
    assert (kind, count) == ("doubted", 1)
    assert what.startswith("gaps of a millisecond and more")


@pytest.mark.parametrize(
    ("apart_ns", "streams", "is_stretched"),
    [(1, 1, True), (0, 1, True), (2, 1, False), (1, 2, False)],
)
def test_stretched_records(
    apart_ns: int,
    streams: int,
    is_stretched: bool,  # noqa: FBT001
) -> None:
    """Kernels that all begin as the one of their stream before ended hide gaps."""
    rows = [
        kernel((10 + apart_ns) * each, 10, stream=each % streams) for each in range(25)
    ]
    found = trust(rows)
    assert bool(found.why_few_gaps) is is_stretched
    if is_stretched:
        assert said(found)[0][0] == "untrusted"


def test_a_file_without_calls() -> None:
    """Where a file has no calls at all, no kernel lacks its own."""
    assert said(trust([kernel(0, 5), kernel(10, 5)])) == []


def test_steps_that_are_cut() -> None:
    """A first or last step with fewer layers than usual is one that was cut."""
    rows = [
        kernel(100 * step + 10 * layer, 5, step=step, step_kind="decode", layer=layer)
        for step, layers in enumerate((1, 3, 3, 3))
        for layer in range(layers)
    ]
    what = "steps at an end of the trace with fewer layers: cut"
    assert said(trust(rows)) == [("doubted", what, 1)]


def test_layers_that_are_cut() -> None:
    """How many layers an end of the trace, or of a step, has cut is said."""
    rows = [kernel(0, 5)]
    found = trust_in(trace(rows), gap_causes(launched(rows)), cut_layers=2)
    ((kind, what, count),) = said(found)
    assert (kind, count) == ("doubted", 2)
    assert what.startswith("layers cut by an end of the trace, or of a step")


def test_the_gravest_come_first() -> None:
    """Notes of the reader and of the figures are sorted together."""
    notes = (
        TraceNote(kind="dropped", what="kernels without a time", count=3),
        TraceNote(kind="repaired", what="escapes", count=1),
    )
    found = trust([kernel(0, 0)], notes=notes)
    assert [note.kind for note in found.notes] == ["doubted", "dropped", "repaired"]


def test_coverage() -> None:
    """Coverage is of the time of kernels, not of their number, and not of copies."""
    rows = [
        kernel(0, 60, layer=0, step=0, region="moe"),
        kernel(60, 20, region="other"),
        kernel(80, 20),
        kernel(100, 900, kind="copy"),
    ]
    found = coverage(placed(rows))
    assert (found.layers, found.regions) == (0.6, 0.8)


def test_coverage_of_nothing() -> None:
    """Kernels of no duration cover nothing."""
    assert coverage(placed([kernel(0, 0)])).layers == 0
