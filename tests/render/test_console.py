import io
import re

import pytest
from rich.console import Console

from layerscope.render.console import print_report
from layerscope.report import (
    Column,
    Fact,
    Interval,
    Kind,
    Report,
    Table,
    Traffic,
    build_report,
)
from tests import edited, handmade


def printed(report: Report, *, width: int, is_terminal: bool = False) -> list[str]:
    """The lines of `report` at a width, without trailing blanks."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=is_terminal,
        color_system="standard" if is_terminal else None,
    )
    print_report(report, console)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def one_table(*cells: object, kind: Kind) -> Report:
    """A report of one table with one column of `cells`."""
    column = Column("value", "value", kind)
    rows = tuple((cell,) for cell in cells)
    return Report("title", (), (Table("table", (column,), rows),))  # type: ignore[arg-type]


def test_a_wide_layer_table() -> None:
    """With room, all parts of a cell stand in one line."""
    lines = printed(build_report(handmade.run()), width=140)
    start = lines.index(
        "layer: one pass, change against unfused torch (reference), in µs"
    )
    rows = [re.split(r" {2,}", line) for line in lines[start + 3 : start + 6]]
    arms = [row[:3] for row in rows]
    assert arms == [
        ["reference", "40.00", "40.00…40.00"],
        ["fused", "30.00", "30.00…30.00"],
        ["reference (A/A)", "40.10", "40.10…40.10"],
    ]
    assert [row[3:-5] for row in rows] == [
        ["–"],
        ["−10.00", "−25.0 %", "−10.00…−10.00", "faster"],
        ["+0.10", "+0.25 %", "+0.10…+0.10"],
    ]
    assert [row[-5:] for row in rows] == [
        ["12.00 MB", "/ 6.000 MB", "= 2.00", "41.00", "3"],
        ["6.000 MB", "/ 6.000 MB", "= 1.00", "30.50", "3"],
        ["12.00 MB", "/ 6.000 MB", "= 2.00", "41.00", "3"],
    ]


def test_a_narrow_layer_table() -> None:
    """In 80 columns, the parts of a cell stand above each other; nothing is cut."""
    lines = printed(build_report(handmade.run()), width=80)
    start = lines.index(
        "layer: one pass, change against unfused torch (reference), in µs"
    )
    assert lines[start + 1 : start + 14] == [
        "                                           touched / profiled",
        "arm                  anchor        change   required     mean kernels",
        "─────────────────────────────────────────────────────────────────────",
        "reference             40.00             –   12.00 MB    41.00       3",
        "                40.00…40.00               / 6.000 MB",
        "                                              = 2.00",
        "fused                 30.00        −10.00   6.000 MB    30.50       3",
        "                30.00…30.00       −25.0 % / 6.000 MB",
        "                            −10.00…−10.00     = 1.00",
        "                                   faster",
        "reference (A/A)       40.10         +0.10   12.00 MB    41.00       3",
        "                40.10…40.10       +0.25 % / 6.000 MB",
        "                              +0.10…+0.10     = 2.00",
    ]


def test_a_narrow_region_table() -> None:
    """The regions of the first arm, as on paper, fit 80 columns."""
    lines = printed(build_report(handmade.run()), width=80)
    start = lines.index("regions of reference, a profiled pass, in µs")
    assert lines[start + 1 : start + 9] == [
        "                                                           last end",
        "                             mean median                    − first",
        "region              kernels share  share  gap   sum hidden    start",
        "───────────────────────────────────────────────────────────────────",
        "attention                 1 22.00  22.00 2.00 20.00   0.00    20.00",
        "o-proj + all-reduce       1  6.00   6.00 1.00  5.00   0.00     5.00",
        "MoE                       1 13.00  13.00 0.00 13.00   0.00    13.00",
        "total                     3 41.00      – 3.00 38.00   0.00        –",
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_nothing_is_wider_than_the_terminal_or_cut(width: int) -> None:
    """No line is longer than the console, and no cell ends in an ellipsis."""
    lines = printed(build_report(handmade.run()), width=width)
    assert max(map(len, lines)) <= width
    assert not any(re.search(r"[a-z]…", line) for line in lines)


def test_a_slow_table_is_in_milliseconds() -> None:
    """One unit for the whole table, named in its title."""
    report = one_table(2_500_000, 1_000, None, kind=Kind.TIME)
    assert printed(report, width=80)[-6:] == [
        "table, in ms",
        "value",
        "─────",
        "2.500",
        "0.001",
        "    –",
    ]


def test_unknown_numbers_are_dashes() -> None:
    """Bounds that are infinite and bytes that no one counted are dashes."""
    unknown = Interval(1_000, float("-inf"), float("inf"))
    assert printed(one_table(unknown, kind=Kind.INTERVAL), width=120)[-1] == "1.00  –…–"
    traffic = Traffic(touched=None, required=2_000, ratio=None)
    lines = printed(one_table(traffic, kind=Kind.TRAFFIC), width=120)
    assert lines[-1] == "–  / 2.000 kB"


def test_changes_have_their_sign_and_ratios_two_digits() -> None:
    """A change is in the unit of its table; sizes have units of their own."""
    assert printed(one_table(1_500, -250, kind=Kind.CHANGE), width=80)[-5:] == [
        "table, in µs",
        "value",
        "─────",
        "+1.50",
        "−0.25",
    ]
    assert printed(one_table(1.5, None, kind=Kind.RATIO), width=80)[-2:] == [
        " 1.50",
        "    –",
    ]
    sizes = printed(one_table(6_000_000, kind=Kind.SIZE), width=80)
    assert sizes[-4:] == ["table", "   value", "────────", "6.000 MB"]


def test_headlines_come_before_the_facts() -> None:
    """Each is a paragraph of its own, apart from the facts; either may be missing."""
    found = Fact("fused", "−10.0 µs: overlap −4.0")
    report = Report("title", (Fact("device", "GPU"),), (), headlines=(found, found))
    line = "fused: −10.0 µs: overlap −4.0"
    assert printed(report, width=80) == ["title", line, line, "", "device  GPU"]
    alone = Report("title", (), (), headlines=(found,))
    assert printed(alone, width=80) == ["title", line]
    styled = printed(alone, width=80, is_terminal=True)
    assert styled[1].startswith("\x1b[1mfused: \x1b[0m")


def test_experiments_fit_80_columns() -> None:
    """Ledger, corners, knock-outs and bounds are neither cut nor wider."""
    lines = printed(build_report(edited.run()), width=80)
    assert max(map(len, lines)) <= 80
    assert not any(re.search(r"[a-z]…", line) for line in lines)
    assert "overlap of fused and of reference, one pass, in µs" in lines


def test_counts_that_vary_have_a_decimal() -> None:
    """A median between two counts is not rounded to one of them."""
    assert printed(one_table(3, 3.5, kind=Kind.COUNT), width=80)[-2:] == [
        "    3",
        "  3.5",
    ]


def test_text_of_the_run_is_no_markup() -> None:
    """Square brackets in names, facts, notes and warnings come out as they are."""
    name = "[bold]gemm[/bold] [/]"
    column = Column("arm", name, Kind.TEXT)
    report = Report(
        title=name,
        facts=(Fact(name, name),),
        tables=(Table(name, (column,), ((name,),)),),
        notes=(name,),
        warnings=(name,),
    )
    assert printed(report, width=80) == [
        name,
        f"{name}  {name}",
        "",
        name,
        name,
        "─" * len(name),
        name,
        "",
        f"note: {name}",
        f"warning: {name}",
    ]


def test_a_file_gets_no_trailing_blanks() -> None:
    """No line of a file or a pipe ends in blanks, at any place of the report."""
    file = io.StringIO()
    print_report(build_report(handmade.run()), Console(file=file, width=80))
    lines = file.getvalue().split("\n")
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_file_gets_no_colours() -> None:
    """Output that is not a terminal holds no escape codes; a terminal's does."""
    report = build_report(handmade.run())
    assert not any("\x1b" in line for line in printed(report, width=80))
    lines = printed(report, width=80, is_terminal=True)
    assert any("\x1b[1;34mfaster" in line for line in lines)


@pytest.mark.parametrize("width", [60, 200])
def test_no_terminal_obeys_a_name(width: int) -> None:
    """Titles and cells with control characters are written out, each in its row."""
    name = "\x1b]0;mine\x07\x9b2J\n"
    shown = r"\x1b]0;mine\x07\x9b2J\n"
    report = Report(
        title=name,
        facts=(Fact(name, name),),
        tables=(Table(name, (Column("name", name, Kind.TEXT),), ((name,),)),),
        headlines=(Fact(name, name),),
        notes=(name,),
        warnings=(name,),
    )
    assert printed(report, width=width) == [
        shown,
        f"{shown}: {shown}",
        "",
        f"{shown}  {shown}",
        "",
        shown,
        shown,
        "─" * len(shown),
        shown,
        "",
        f"note: {shown}",
        f"warning: {shown}",
    ]
