from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from benchmarks.accuracy.__main__ import limits_text, main
from benchmarks.accuracy.knocked import knock_out_table
from benchmarks.accuracy.markdown import percent, plus_minus, spread, table, within
from benchmarks.accuracy.observer import costs_table, observer_tables
from benchmarks.accuracy.planted import (
    mixtures_table,
    overlap_table,
    planted_table,
    records_table,
)
from benchmarks.accuracy.repeats import (
    false_positives_table,
    half_width,
    widths_tables,
)
from benchmarks.accuracy.traces_left import after_table, gaps_table
from layerscope.analyze.bootstrap import Estimate
from layerscope.run import Run, RunWriter
from layerscope.run_header import KernelCost
from layerscope.study import Arm
from tests import edited, handmade

COST = KernelCost(blocks=132, added_ns=150.0, low_ns=140.0, high_ns=160.0)


def write(path: Path, run: Run) -> Path:
    """`run` as a folder at `path`; the folder above it."""
    writer = RunWriter(path, run.header)
    writer.add_samples(run.samples)
    writer.add_kernels(run.kernels)
    writer.checkpoint()
    return path.parent


def renamed(arms: dict[str, str]) -> Run:
    """The edited run with arms that are copies, each a new name of an old one."""
    run, first = edited.run(), next(iter(arms))
    copies = {**arms, f"{first} (A/A)": "reference (A/A)"}
    samples, kernels = (
        pl.concat(
            frame.filter(pl.col("arm") == old).with_columns(arm=pl.lit(new))
            for new, old in copies.items()
        )
        for frame in (run.samples, run.kernels)
    )
    header = msgspec.structs.replace(
        run.header,
        study=msgspec.structs.replace(
            run.header.study, arms=tuple(Arm(backend=name) for name in arms)
        ),
        trials=[
            msgspec.structs.replace(trial, arm=new)
            for new, old in arms.items()
            for trial in run.header.trials
            if trial.arm == old
        ],
        observer_costs=[COST],
    )
    return replace(run, header=header, samples=samples, kernels=kernels)


def planted(base_extra_ns: int = 0) -> Run:
    """The edited run with arms of a self-test, the base slower than there."""
    run = renamed({"base": "reference", "other": "fused"})
    slower = pl.col("passes") * base_extra_ns * (pl.col("arm") == "base")
    return replace(
        run,
        samples=run.samples.with_columns(duration_ns=pl.col("duration_ns") + slower),
    )


@pytest.fixture
def selftest(tmp_path: Path) -> Path:
    """Three cases: `closes` to the nanosecond, `open` and `same` do not."""
    write(tmp_path / "open", planted())
    write(tmp_path / "closes", planted(1_000))
    write(tmp_path / "same", planted())
    cases = {
        "closes": {
            "difference": "it is faster and overlaps",
            "expected": ["shorter gaps", "overlap", "same code"],
            "demand": "saving",
        },
        "open": {
            "difference": "it overlaps",
            "expected": ["overlap"],
            "demand": "saving",
        },
        "same": {"difference": "nothing", "expected": [], "demand": "nothing"},
        "never recorded": {"difference": "", "expected": [], "demand": "nothing"},
    }
    (tmp_path / "planted.json").write_bytes(msgspec.json.encode(cases))
    return tmp_path


def exactly(value: float) -> Estimate:
    """An estimate of 18 rounds without noise."""
    return Estimate(value, value, value, 18, 18.0)


def test_tables_are_markdown() -> None:
    """Text is on the left, numbers on the right, remarks on the left again."""
    assert table(("a", "b"), ("c",), [("1", "2", "3", "4")], ("d",)) == (
        "| a | b | c | d |\n|---|---|--:|---|\n| 1 | 2 | 3 | 4 |"
    )


def test_estimates_have_their_interval() -> None:
    """Times are in µs; what was not measured is a dash, and no number."""
    found = Estimate(-1_000.0, -1_250.0, -850.0, 9, 9.0)
    assert plus_minus(found) == "−1.00 ± 0.20"
    assert plus_minus(exactly(500.0), signed=False) == "0.50 ± 0.00"
    assert within(found) == "−1.00 (−1.25 … −0.85)"
    nothing = Estimate(float("nan"), float("-inf"), float("inf"), 0, 0.0)
    assert (plus_minus(nothing), within(nothing)) == ("–", "–")
    assert (percent(0.021), percent(float("nan"))) == ("+2.10 %", "–")


def test_many_values_are_shown_by_their_median_and_ends() -> None:
    """One value has no ends."""
    assert spread([3.0, 1_000.0, 2.0], 0) == "3 (2 … 1,000)"
    assert spread([3.0], 1) == "3.0"


def test_planted_causes_are_judged_as_they_were_planted(selftest: Path) -> None:
    """Overlap saves 4 µs, kernels 8; a gap is 1 longer; the base adds 1 when recorded.

    A kernel of the base has no gap before it, so 0.15 µs of its record are in its time.

    Where the base is as slow unprofiled, the lines add up to the change. A case that
    the self-test does not know, or no longer plants so, is what its folder says.
    """
    assert planted_table(selftest) == (
        "1 of 3 cases pass.\n\n"
        "| case | differs in | expected on | change, µs | there | residual, µs "
        "| verdict |\n|---|---|---|--:|--:|--:|---|\n"
        "| closes | it is faster and overlaps | overlap + shorter gaps + same code "
        "| −11.00 (−11.00 … −11.00) | 100.0 % | 0.00 (0.00 … 0.00) "
        "| pass: most elsewhere: fewer launches 0 ns |\n"
        "| open | it overlaps | overlap | −10.00 (−10.00 … −10.00) | 40.0 % "
        "| +1.00 (+1.00 … +1.00) | **FAIL**: most elsewhere: same code −7.850 µs |\n"
        "| same | nothing | – | −10.00 (−10.00 … −10.00) | – | +1.00 (+1.00 … +1.00) "
        "| **FAIL**: faster |"
    )


def test_the_four_times_of_overlap_are_shown(selftest: Path) -> None:
    """40 and 30 µs as captured; the base is its own twin, the other's takes 34."""
    heads, _, _, row, *_ = overlap_table(selftest).splitlines()
    assert heads == (
        "| case | base: captured, µs | base: serial twin, µs | base: overlap gives, µs "
        "| other: captured, µs | other: serial twin, µs | other: overlap gives, µs |"
    )
    assert row == (
        "| open | 40.00 ± 0.00 | 40.00 ± 0.00 | 0.00 ± 0.00 | 30.00 ± 0.00 "
        "| 34.00 ± 0.00 | +4.00 ± 0.00 |"
    )


def test_cases_without_any_overlap_have_no_four_times(tmp_path: Path) -> None:
    """Where both arms are their own twins, nothing is shown."""
    run = renamed({"base": "reference", "other": "reference"})
    folder = write(tmp_path / "less", run)
    assert overlap_table(folder).count("\n") == 1


def test_what_is_left_of_the_profiler_is_shown_by_arm(selftest: Path) -> None:
    """Of three kernels, 450 ns are subtracted: of 1,000 ns, or of none at all."""
    rows = records_table(selftest).splitlines()
    assert rows[0] == (
        "| case | arm | kernels | added, µs | subtracted, µs | left, µs "
        "| left, of the pass |"
    )
    assert rows[4:6] == [
        "| open | base | 3 | +1.00 ± 0.00 | 0.45 | +0.55 ± 0.00 | +1.38 % |",
        "| open | other | 3 | 0.00 ± 0.00 | 0.45 | −0.45 ± 0.00 | −1.32 % |",
    ]


def test_mixtures_are_held_against_what_adding_a_cause_changed(tmp_path: Path) -> None:
    """Only the last arm differs: by 10 µs when added, of which 4 are overlap."""
    assert mixtures_table(tmp_path) == "Not recorded yet: there is no run of mixtures."
    arms = dict.fromkeys(("base", "work", "fusion"), "reference")
    folder = write(tmp_path / "mixtures", renamed({**arms, "overlap": "fused"}))
    failed = "**FAIL**: line less marginal: fusion 0.00 %, overlap −60.0 %"
    rows = mixtures_table(folder).splitlines()
    assert rows[0] == (
        "| mixture | cause | by the ledger, µs | when added, µs "
        "| apart, of the change | verdict |"
    )
    assert rows[2].startswith("| work + fusion | work | 0.00 | 0.00 | – | **FAIL**")
    assert rows[4:6] == [
        f"| fusion + overlap | fusion | 0.00 | 0.00 | 0.00 % | {failed} |",
        f"| fusion + overlap | overlap | −4.00 | −10.00 | −60.0 % | {failed} |",
    ]


def test_shares_are_held_against_knock_outs(tmp_path: Path) -> None:
    """13 and 11 µs of records, less 150 ns each, against 12.3 and 9.8 by knock-out."""
    run = edited.run(observer_costs=[COST])
    assert knock_out_table(write(tmp_path / "paper", run)) == (
        "| run | arm | region | share, µs | knock-out, µs | difference, µs "
        "| of the twin's pass |\n|---|---|---|--:|--:|--:|--:|\n"
        "| paper | reference | moe | 12.85 ± 0.00 | 12.30 ± 0.00 | +0.55 ± 0.00 "
        "| +1.38 % |\n"
        "| paper | fused | moe | 10.85 ± 0.00 | 9.80 ± 0.00 | +1.05 ± 0.00 "
        "| +3.09 % |"
    )


def test_runs_without_knock_outs_say_so(tmp_path: Path) -> None:
    """No table without rows."""
    handmade.write(tmp_path / "paper")
    assert knock_out_table(tmp_path) == (
        "Not recorded yet: no run has a knock-out on a serial twin."
    )


def test_the_observer_effect_is_shown_by_arm_and_by_run(tmp_path: Path) -> None:
    """1,000 of 40,000 ns and 500 of 30,000, both of three kernels; drafts are runs."""
    handmade.write(tmp_path / "paper")
    handmade.write(tmp_path / "paper" / "draft")
    cells = (
        "+1.00 ± 0.00 | +2.50 % | 333 ± 0 (3) | +0.50 ± 0.00 | +1.67 % | 167 ± 0 (3)"
    )
    assert observer_tables(tmp_path, "cupti") == (
        "| arm | runs | added, % of the pass | ns a kernel |\n|---|--:|--:|--:|\n"
        "| reference | 2 | 2.5 (2.5 … 2.5) | 333 (333 … 333) |\n"
        "| fused | 2 | 1.7 (1.7 … 1.7) | 167 (167 … 167) |\n\n"
        "| run | reference: added, µs | reference: of the pass "
        "| reference: ns a kernel | fused: added, µs | fused: of the pass "
        "| fused: ns a kernel |\n|---|--:|--:|--:|--:|--:|--:|\n"
        f"| paper | {cells} |\n| paper/draft | {cells} |"
    )
    assert observer_tables(tmp_path, "torch.profiler") == (
        "Not recorded yet: there is no run with torch.profiler."
    )


def test_calibrated_costs_are_shown_by_blocks(tmp_path: Path) -> None:
    """Each calibration counts once, however many runs share it."""
    handmade.write(tmp_path / "before")
    assert costs_table(tmp_path) == "Not recorded yet: no run has a calibrated cost."
    small = KernelCost(blocks=1, added_ns=200.0, low_ns=170.0, high_ns=230.0)
    other = KernelCost(blocks=132, added_ns=130.0, low_ns=122.0, high_ns=134.0)
    for name, costs in {"a": [small, COST], "b": [small, COST], "c": [other]}.items():
        handmade.write(tmp_path / name, observer_costs=costs)
    assert costs_table(tmp_path) == (
        "| blocks | calibrations | added, ns a kernel | half of an interval, ns |\n"
        "|---|--:|--:|--:|\n"
        "| 1 | 1 | 200 | 30 |\n"
        "| 132 | 2 | 140 (130 … 150) | 8 |"
    )


def test_false_positives_are_counted_by_captures(tmp_path: Path) -> None:
    """The A/A arm is 100 ns slower in every round: seen by the interval, not called.

    Three captures have three splits, in each of which one or two are swapped: then the
    interval has zero.
    """
    handmade.write(tmp_path / "paper")
    heads, _, row, total = false_positives_table(tmp_path).splitlines()
    assert heads == (
        "| captures | runs | as measured, interval alone | captures swapped: splits "
        "| captures swapped: interval alone | captures swapped: verdict "
        "| rounds swapped: splits | rounds swapped: interval alone "
        "| rounds swapped: verdict |"
    )
    assert row.startswith("| 3 | 1 | 1 | 3 | 0.00 % | 0.00 % | 50 | ")
    assert row.endswith(" | 0.00 % |")
    assert total == row.replace("| 3 | 1 |", "| all | 1 |", 1)


def pairs(captures: list[list[float]]) -> pl.DataFrame:
    """Differences, round by round of each capture."""
    rows = [
        (capture, round_, change_ns)
        for capture, rounds in enumerate(captures)
        for round_, change_ns in enumerate(rounds)
    ]
    return pl.DataFrame(rows, schema=["capture", "round", "change_ns"], orient="row")


def test_a_width_is_of_the_first_rounds() -> None:
    """What comes later does not count."""
    found = pairs([[5.0, 5.0, 90.0], [5.0, 5.0, -70.0], [5.0, 5.0, 0.0]])
    assert half_width(found, captures=3, rounds=2) == 0.0
    assert half_width(found, captures=3, rounds=3) > 0.0


def test_a_width_is_the_median_over_choices_of_captures() -> None:
    """One capture of five is off: of one capture at a time most see nothing of it."""
    found = pairs([[5.0, 5.0]] * 4 + [[50.0, 50.0]])
    assert half_width(found, captures=3, rounds=2) > 0.0
    assert half_width(found, captures=1, rounds=2) == 0.0


def test_widths_are_shown_by_rounds_and_captures(tmp_path: Path) -> None:
    """A run without noise has none; its three captures have six rounds each."""
    run = handmade.write(tmp_path / "paper")
    fused, again = widths_tables(run).split("\n\n")
    assert fused == (
        "| fused: rounds a capture | 3 captures |\n|---|--:|\n"
        "| 1 | 0.00 % (3) |\n| 2 | 0.00 % (6) |\n| 4 | 0.00 % (12) |"
    )
    assert again == fused.replace("fused", "reference (A/A)")


def test_limits_are_shown_after_how_many_are_near(tmp_path: Path) -> None:
    """The last line repeats a figure, and does not count."""
    file = tmp_path / "limits.txt"
    file.write_text("tp  1.0  -9.9%  2.0 +10.1%\n\nlargest deviation +10.1%\n")
    assert limits_text(file) == (
        "1 of 2 figures are within 10 % of the first:\n\n"
        "```text\ntp  1.0  -9.9%  2.0 +10.1%\n\nlargest deviation +10.1%\n```"
    )


def test_a_table_is_chosen_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not one of them is answered with the list."""
    main(["knock-outs", str(tmp_path)])
    assert capsys.readouterr().out == (
        "Not recorded yet: no run has a knock-out on a serial twin.\n"
    )
    with pytest.raises(SystemExit, match=r"planted\|overlap\|.*\|printed PATH"):
        main(["plants", str(tmp_path)])


EXPECTED_GAPS = """\
| run | arm | edges | graph | gap, µs | kernel, µs |
|---|---|---|---|--:|--:|
| edited | reference | full | captured | 1.00 ± 0.00 | 12.67 ± 0.00 |
| edited | fused | programmatic | serial | 1.33 ± 0.00 | 10.00 ± 0.00 |"""

EXPECTED_AFTER = """\
| run | arm | edges | before, µs | after, µs |
|---|---|---|--:|--:|
| edited | reference | full | 40.00 ± 0.00 | 40.00 ± 0.00 |
| edited | fused | programmatic | 30.00 ± 0.00 | 30.00 ± 0.00 |"""


def test_gaps_are_told_of_graphs_in_which_nothing_overlaps(tmp_path: Path) -> None:
    """The captured graph of an arm that is serial, the twin of the other.

    A pass of the reference has 38 us of kernels and 3 us of gaps, one of the twin of
    ``fused`` 30 and 4; both have three kernels.
    """
    write(tmp_path / "edited", edited.run())
    assert gaps_table(tmp_path) == EXPECTED_GAPS


def test_anchors_are_told_before_and_after_the_profiler(tmp_path: Path) -> None:
    """Those after it are of one capture."""
    write(tmp_path / "edited", edited.run())
    assert after_table(tmp_path) == EXPECTED_AFTER
