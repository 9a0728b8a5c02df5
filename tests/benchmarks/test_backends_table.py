"""The tables of the backends' studies, of runs made by hand."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks.backends_table import Pair, distances, main, measured, table
from layerscope.run import Run, RunWriter
from layerscope.run_header import LaunchCost
from layerscope.study import Arm
from tests import edited, handmade, switched

HEADS = ["layer", "ranks", "rows", "weights"]
PARTS = ["change", "overlap, µs", "fusion, µs", "residual, µs", "kernels"]
COLUMNS = (
    f"| {' | '.join([*HEADS, 'reference, µs', 'fused, µs', *PARTS])} |",
    "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
)
PAIR = Pair("reference", "fused")
"""Of the runs made by hand; the base is the first of their arms."""

ONE_SPEED = [
    LaunchCost(phase="anchor", kernel_ns=740.0, low_ns=739.0, high_ns=741.0),
    LaunchCost(phase="bounds", kernel_ns=744.0, low_ns=743.0, high_ns=745.0),
]
AT_ONE_SPEED = edited.run(launch_costs=ONE_SPEED)


def resized(run: Run, **changes: int) -> Run:
    """`run` as if of a layer with `changes` to its spec."""
    study = run.header.study
    spec = msgspec.structs.replace(study.spec, **changes)
    header = msgspec.structs.replace(
        run.header, study=msgspec.structs.replace(study, spec=spec)
    )
    return replace(run, header=header)


def with_arms(run: Run, *names: str) -> Run:
    """`run` as if its study had asked for arms of these names."""
    study = msgspec.structs.replace(
        run.header.study, arms=tuple(Arm(backend=name) for name in names)
    )
    return replace(run, header=msgspec.structs.replace(run.header, study=study))


def cells(lines: Iterator[str]) -> list[list[str]]:
    """Those of the rows of a table."""
    _, _, *rows = lines
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_the_ledger_stands_beside_the_change() -> None:
    """Ten microseconds less: overlap gave four, same code eight, gaps took one."""
    found = list(table(HEADS, measured([edited.run(), edited.run()]), PAIR))
    row = (
        "| 1 | 6 | bfloat16 | 40.0 ± 0.0 | 30.0 ± 0.0 | −25.0 %, faster "
        "| −4.0 | 0.0 | +1.0 ± 0.0 | 3, 3 |"
    )
    assert found == [*COLUMNS, f"| paper-moe {row}", f"|  {row}"]


def test_without_a_ledger_there_are_dashes() -> None:
    """An arm that was not measured has neither a time nor causes."""
    run = handmade.run()
    untimed = replace(run, samples=run.samples.clear())
    *_, found = table(HEADS, measured([untimed]), PAIR)
    assert found == "| paper-moe | 1 | 6 | bfloat16 | – | – | – | – | – | – | 3, 3 |"


def test_an_arm_that_a_run_lacks_has_dashes_there() -> None:
    """The change is that of the named arms, wherever others stand between or behind."""
    short, long = edited.run(), resized(edited.run(), tp=2)
    long = with_arms(long, "reference", "never_run", "fused")
    lines = list(table(HEADS, measured([short, long]), PAIR))
    assert lines[0] == COLUMNS[0].replace("| change", "| never_run, µs | change")
    first, second = cells(iter(lines))
    assert first[4:8] == ["40.0 ± 0.0", "30.0 ± 0.0", "–", "−25.0 %, faster"]
    assert second[4:8] == ["40.0 ± 0.0", "30.0 ± 0.0", "–", "−25.0 %, faster"]
    assert (first[-1], second[-1]) == ("3, 3, –", "3, 3, –")


def test_arms_that_were_not_compared_have_no_change() -> None:
    """Where the first arm is another, its comparisons are not of the named ones."""
    (found,) = cells(table(HEADS, measured([edited.run()])))
    assert found[6:] == ["–", "–", "–", "–", "3, 3"]


def test_rows_are_in_the_order_of_ranks_then_rows() -> None:
    """However the runs are listed, and as numbers: 8 before 64."""
    sizes = [(4, 8), (1, 8), (4, 64), (4, 6)]
    runs = [
        resized(edited.run(), tp=tp, requests=rows, draft_tokens=0)
        for tp, rows in sizes
    ]
    found = [cell[1:3] for cell in cells(table(HEADS, measured(runs), PAIR))]
    assert found == [["1", "8"], ["4", "6"], ["4", "8"], ["4", "64"]]


def test_bounds_stand_with_how_many_times_each_arm_takes_them() -> None:
    """Anchors of 40 and 30 µs over 20, 12 and 8; what was not measured is a dash."""
    (found,) = cells(distances(HEADS, measured([AT_ONE_SPEED]), PAIR))
    assert found[4:] == [
        *("20.0 (2.00, 1.50)", "–", "12.0 (3.33, 2.50)", "–", "8.0 (5.00, 3.75)"),
    ]


def test_bounds_of_an_arms_own_kernels_are_not_those_of_the_chain() -> None:
    """They have no row of their own, and take no cell."""
    own = msgspec.structs.replace(edited.BOUNDS[0], arm="fused", pass_ns=1.0)
    run = edited.run(bounds=[*edited.BOUNDS, own], launch_costs=ONE_SPEED)
    assert list(distances(HEADS, measured([run]), PAIR)) == list(
        distances(HEADS, measured([AT_ONE_SPEED]), PAIR)
    )


def test_without_limits_there_are_dashes() -> None:
    """The row stays, so that what is missing is seen."""
    run = edited.run(bounds=[], launch_costs=ONE_SPEED)
    (found,) = cells(distances(HEADS, measured([run]), PAIR))
    assert found[4:] == ["–"] * 5


def test_bounds_at_another_speed_of_launches_are_not_told() -> None:
    """Nor those of a run that did not note it."""
    slower = [ONE_SPEED[0], msgspec.structs.replace(ONE_SPEED[1], kernel_ns=920.0)]
    for costs in (slower, []):
        run = edited.run(launch_costs=costs)
        (found,) = cells(distances(HEADS, measured([run]), PAIR))
        assert found[4:] == ["–"] * 5


def test_without_runs_there_is_no_table() -> None:
    """Of drafts that no run has, for example."""
    assert list(table(HEADS, measured([]))) == []
    assert list(distances(HEADS, measured([]))) == []


def test_runs_that_tell_switches_or_stamps_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder with a comparison and studies of both, the first is printed."""
    stamped = edited.run()
    study = msgspec.structs.replace(
        stamped.header.study, stamp_arms=(Arm(backend="fused", stamps=True),)
    )
    stamped = replace(
        stamped, header=msgspec.structs.replace(stamped.header, study=study)
    )
    runs = {"a": edited.run(), "b": switched.run(), "c": stamped}
    for name, run in runs.items():
        writer = RunWriter(tmp_path / name, run.header)
        writer.add_samples(run.samples)
        writer.add_kernels(run.kernels)
        writer.checkpoint()
    main(tmp_path)
    layers, bounds = capsys.readouterr().out.split("\n\n")
    assert layers.splitlines()[:2] == list(COLUMNS)
    assert len(layers.splitlines()) == 3
    assert bounds.startswith("| bounds | ranks | rows | weights | no PDL, µs |")
    assert len(bounds.splitlines()) == 3
