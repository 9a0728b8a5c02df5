import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyze.trace_gaps import gap_causes
from layerscope.analyze.trace_trust import Trust
from layerscope.analyze.trace_verdict import Part, StepVerdict, verdicts
from tests.analyze.placed_kernels import Row, kernel, launched
from tests.analyze.planted import ranges

Launch = tuple[int, str, int, int]


def judged(
    rows: list[Row], *launches: Launch, **doubts: str
) -> tuple[StepVerdict, ...]:
    """The verdicts on these kernels."""
    trust = Trust(notes=(), **doubts)
    return verdicts(gap_causes(launched(rows, *launches)), trust)


def at(start_ns: int, duration_ns: int, step: int = 0, **fields: str | int) -> Row:
    """A kernel of a step, launched by the call of its start."""
    known = {"step_kind": "decode", "correlation": start_ns}
    return kernel(start_ns, duration_ns, step=step, **(known | fields))


def late(*starts: int) -> list[Launch]:
    """Launches 1 ns before kernels start."""
    return [(each, "cudaLaunchKernel", each - 2, each - 1) for each in starts]


def early(*starts: int) -> list[Launch]:
    """Launches long before kernels start."""
    return [(each, "cudaLaunchKernel", -10, -9) for each in starts]


def test_a_step_that_computes() -> None:
    """Less than a fifth of waiting is computing, and said in all its parts."""
    found = judged([at(0, 90), at(100, 90), at(190, 10, name="nccl")], *late(0, 100))
    assert found == (
        StepVerdict(
            step_kind="decode",
            steps=1,
            verdict="computes",
            parts={Part.COMPUTE: 180, Part.LAUNCH: 10, Part.COMMUNICATION: 10},
        ),
    )


@pytest.mark.parametrize(
    ("rows", "launches", "verdict"),
    [
        ([at(0, 60), at(100, 60)], late(0, 100), "waits: late launches"),
        ([at(0, 60), at(100, 60)], early(0, 100), "waits: gaps on the device"),
        ([at(0, 60), at(100, 60)], [], "waits"),
        ([at(0, 60), at(60, 60, name="nccl")], early(0, 60), "waits: communication"),
        ([at(0, 60), at(100, 60, step=1)], late(100), "waits: gaps between steps"),
        (
            [at(0, 60), at(100, 60), at(160, 45, name="nccl")],
            late(100),
            "waits: communication and late launches",
        ),
    ],
)
def test_what_a_step_waits_for(
    rows: list[Row], launches: list[Launch], verdict: str
) -> None:
    """A fifth of waiting is named after its largest part, or its largest two."""
    (found,) = judged(rows, *launches)
    assert found.verdict == verdict


def test_idle_time_that_nobody_knows() -> None:
    """Where kernels are missing there is no verdict and no part, but the reason."""
    rows = [at(0, 60), at(100, 60)]
    (found,) = judged(rows, *late(0, 100), why_no_idle="lost replays")
    assert found == StepVerdict(
        step_kind="decode",
        steps=1,
        verdict="unknown",
        reason="lost replays",
        parts={},
    )


def test_gaps_in_replays_without_kernels() -> None:
    """Parts of the time that are waiting have a cause, or none that is known."""
    told = ranges(("CUDA graph 1", 60, 100), kind="graph", device=0)
    caused = gap_causes(launched([at(0, 60), at(100, 60)], *late(0, 100)), told)
    (found,) = verdicts(caused, Trust(notes=()))
    assert found.parts == {Part.COMPUTE: 120, Part.UNKNOWN: 40}


def test_gaps_that_durations_hold() -> None:
    """Computing is not sure where records hide gaps; waiting is all the same."""
    found = judged([at(0, 90)], why_few_gaps="durations hold gaps")
    assert found[0].verdict == "computes, as far as told"
    assert found[0].reason == "durations hold gaps"
    waits = judged([at(0, 60), at(100, 60)], *late(100), why_few_gaps="as before")
    assert (waits[0].verdict, waits[0].reason) == ("waits: late launches", "")


def test_a_kind_of_steps_is_judged_alike_beside_others_and_without_them() -> None:
    """The gap before its first step is between steps; only step 0 has none before."""
    rows = [at(0, 60, step_kind="prefill"), at(100, 60, step=1), at(160, 10, step=1)]
    caused = gap_causes(launched(rows, *late(100)), ranges())
    beside = verdicts(caused, Trust(notes=()))
    alone = verdicts(caused.filter(pl.col("step") == 1), Trust(notes=()))
    assert alone == beside[1:]
    assert alone[0].parts == {Part.COMPUTE: 70, Part.BETWEEN: 40}


def test_kinds_of_steps_are_apart() -> None:
    """Decode and prefill have a verdict each, in order of appearance."""
    rows = [at(0, 60, step_kind="prefill"), at(100, 60, step=1), at(160, 10, step=1)]
    found = judged(rows, *late(100))
    told = [(each.step_kind, each.steps, each.verdict) for each in found]
    assert told == [
        ("prefill", 1, "computes"),
        ("decode", 1, "waits: gaps between steps"),
    ]


def test_the_gap_before_the_first_step_is_left_out() -> None:
    """What comes before the first step tells nothing of steps."""
    (found,) = judged([kernel(0, 10), at(1_000, 50)], *late(1_000))
    assert found.parts == {Part.COMPUTE: 50}


def test_a_device_without_steps() -> None:
    """Without steps the verdict is on all that ran."""
    (found,) = judged([kernel(0, 10), kernel(30, 10)])
    assert (found.step_kind, found.steps, found.whole_ns) == (None, 0, 40)


def test_kernels_of_no_duration() -> None:
    """Nothing is said of no time."""
    (found,) = judged([kernel(0, 0)])
    assert found.verdict == "unknown"


times = st.integers(min_value=0, max_value=200)
kernels = st.builds(
    lambda start, duration, step, name: at(start, duration, step, name=name),
    times,
    times,
    st.sampled_from([0, 1]),
    st.sampled_from(["nccl", "gemm"]),
)


@given(st.lists(kernels, min_size=1, max_size=20), st.booleans())
def test_parts_add_up(rows: list[Row], has_launches: bool) -> None:  # noqa: FBT001
    """All parts of all steps are the span, less the gap before the first step."""
    swept = gap_causes(launched(rows, *(late(*range(200)) if has_launches else [])))
    parts = sum(each.whole_ns for each in verdicts(swept, Trust(notes=())))
    first = swept["step"].min()
    before = swept.filter(swept["step"] == first)["gap_ns"][0]
    begun = min(swept["start_ns"].to_list())
    ended = max((swept["start_ns"] + swept["duration_ns"]).to_list())
    assert parts == ended - begun - before
