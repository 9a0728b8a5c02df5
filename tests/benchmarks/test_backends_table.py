"""The tables of the backends' studies, of runs made by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.backends_table import main, table
from layerscope.run import RunWriter
from tests import edited, handmade, switched

HEADS = ["layer", "ranks", "rows", "weights"]
VALUES = ["reference, µs", "fused, µs", "change", "overlap, µs", "fusion, µs"]
COLUMNS = (
    f"| {' | '.join([*HEADS, *VALUES])} | kernels |",
    "|---|---|---|---|--:|--:|--:|--:|--:|--:|",
)


def test_the_ledger_stands_beside_the_change() -> None:
    """Ten microseconds less, of which overlap is four and fusion none."""
    found = list(table(HEADS, [edited.run(), edited.run()]))
    cells = (
        "| 1 | 6 | bfloat16 | 40.0 ± 0.0 | 30.0 ± 0.0 | −25.0 %, faster "
        "| −4.0 | 0.0 | 3, 3 |"
    )
    assert found == [*COLUMNS, f"| paper-moe {cells}", f"|  {cells}"]


def test_without_a_ledger_there_are_dashes() -> None:
    """An arm that was not measured has neither a time nor causes."""
    run = handmade.run()
    untimed = replace(run, samples=run.samples.clear())
    *_, found = table(HEADS, [untimed])
    assert found == "| paper-moe | 1 | 6 | bfloat16 | – | – | – | – | – | 3, 3 |"


def test_runs_that_tell_switches_apart_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder with a comparison and a study of switches, the first is printed."""
    for name, run in (("a", edited.run()), ("b", switched.run())):
        writer = RunWriter(tmp_path / name, run.header)
        writer.add_samples(run.samples)
        writer.add_kernels(run.kernels)
        writer.checkpoint()
    main(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == list(COLUMNS)
    assert printed[2].startswith("| paper-moe | 1 | 6 |")
    assert printed[3:] == [""]
