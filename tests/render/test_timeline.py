import io
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from layerscope.render.timeline import PLAIN, Axis, Bar, print_timeline
from layerscope.report import Column, Kind, Table
from layerscope.report.median_passes import MedianPass, Row, Stretch, drawn_passes
from tests import handmade

TITLE = "paper-moe, layer 0"


def printed(
    *passes: MedianPass,
    width: int,
    title: str = TITLE,
    is_terminal: bool = False,
    color: bool = False,
) -> list[str]:
    """The lines of `passes` at a width, those of the hand-made run by default."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=is_terminal,
        color_system="standard" if color else None,
    )
    print_timeline(passes or drawn_passes(handmade.run()), title, console)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def narrow(label: str, bar: str, numbers: str = "") -> str:
    """A line of 80 columns: 20 of a label, 39 of a bar, and the numbers."""
    return f"{label:<20}{bar:<39}{numbers:>21}".rstrip()


def test_a_narrow_terminal() -> None:
    """In 80 columns, each cell is 1.051 µs, and the shortest gap is only counted."""
    assert printed(width=80, is_terminal=True) == [
        "paper-moe, layer 0: median pass of each arm, in µs",
        narrow("", "0        10        20       30", "share    gap hidden"),
        narrow("", "┬────────┬─────────┬────────┬─────────┬"),
        "reference, 3 kernels",
        narrow("attention", "··███████████████████", "22.00   2.00   0.00"),
        narrow(
            "o-proj + all-reduce",
            "                    ··█████",
            "6.00   1.00   0.00",
        ),
        narrow(
            "MoE",
            "                          ▌████████████",
            "13.00   0.00   0.00",
        ),
        narrow("total", "", "41.00   3.00   0.00"),
        "",
        "fused, 3 kernels",
        narrow("attention", "·██████████████▌", "16.00   1.00   0.00"),
        narrow("o-proj + all-reduce", "              ░████▌", "4.00   0.00   1.00"),
        narrow("MoE", "                   ▌█████████▌", "10.50   0.50   0.00"),
        narrow("total", "", "30.50   1.50   1.00"),
        "too short to be seen here: 1 gap",
        "",
        "█ kernel, ▌ in less than half of 1.051 µs",
        "▓ kernels, with gaps in at least a tenth of that",
        "░ hidden behind others, · gap before a kernel",
    ]


def wide(label: str, bar: str, numbers: str = "") -> str:
    """A line of 120 columns: 20 of a label, 79 of a bar, and the numbers."""
    return f"{label:<20}{bar:<79}{numbers:>21}".rstrip()


def test_a_wide_file() -> None:
    """In 120 columns all is seen; what is no terminal gets signs of any encoding."""
    times = "0        5         10       15        20        25       30        35"
    ticks = "+--------+---------+--------+---------+---------+--------+---------+"
    assert printed(width=120) == [
        "paper-moe, layer 0: median pass of each arm, in µs",
        wide("", f"{times}        40", "share    gap hidden"),
        wide("", f"{ticks}---------+-"),
        "reference, 3 kernels",
        wide("attention", "." * 4 + "#" * 38 + "|", "22.00   2.00   0.00"),
        wide(
            "o-proj + all-reduce",
            " " * 42 + "." * 2 + "=" + "#" * 9,
            "6.00   1.00   0.00",
        ),
        wide("MoE", " " * 53 + "|" + "#" * 25, "13.00   0.00   0.00"),
        wide("total", "", "41.00   3.00   0.00"),
        "",
        "fused, 3 kernels",
        wide("attention", "." * 2 + "#" * 29, "16.00   1.00   0.00"),
        wide(
            "o-proj + all-reduce",
            " " * 28 + "-" * 3 + "#" * 8,
            "4.00   0.00   1.00",
        ),
        wide("MoE", " " * 38 + "." * 2 + "#" * 19, "10.50   0.50   0.00"),
        wide("total", "", "30.50   1.50   1.00"),
        "",
        "# kernel, | in less than half of 519 ns",
        "= kernels, with gaps in at least a tenth of that",
        "- hidden behind others, . gap before a kernel",
    ]


def test_colour_says_nothing_that_is_not_said_in_words() -> None:
    """With colours, a terminal shows the same signs; a file never gets any."""
    coloured = printed(width=80, is_terminal=True, color=True)
    assert any("\x1b[34m" in line for line in coloured)
    bare = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in coloured]
    assert bare == printed(width=80, is_terminal=True)
    assert not any("\x1b" in line for line in printed(width=80))


def test_a_start_before_the_pass_and_a_long_name() -> None:
    """A kernel that starts beside the pass before lies left of 0; no name is cut."""
    region = "a_region_of_a_very_long_name"
    column = Column("region", "region", Kind.REGION)
    columns = (column, *(Column(f"{n}_ns", n, Kind.TIME) for n in ("share", "gap")))
    rows = ((region, 12_000, 0), ("total", 12_000, 0))
    stretches = (Stretch("hidden", -8_000, 0), Stretch("kernel", 0, 12_000))
    early = MedianPass(
        arm="mine",
        increment_ns=12_000,
        kernels=1,
        rows=(Row(region, stretches),),
        table=Table("table", columns, rows, has_total=True),
    )
    assert printed(early, width=52) == [
        "paper-moe, layer 0: median pass of each arm, in µs",
        "                            0         10 share   gap",
        "                    --------+---------+-",
        "mine, 1 kernel",
        "a_region_of_a_very_ --------############ 12.00  0.00",
        "long_name",
        "total                                    12.00  0.00",
        "",
        "# kernel, | in less than half of 1.000 µs",
        "= kernels, with gaps in at least a tenth of that",
        "- hidden behind others, . gap before a kernel",
    ]


def test_no_terminal_obeys_a_name() -> None:
    """Arms and regions with control characters are written out, each in its row."""
    region = "\x1b]0;r\x07"
    columns = (Column("region", "region", Kind.REGION), Column("ns", "n", Kind.TIME))
    rows = ((region, 12_000), ("total", 12_000))
    hostile = MedianPass(
        arm="my\narm",
        increment_ns=12_000,
        kernels=1,
        rows=(Row(region, (Stretch("kernel", 0, 12_000),)),),
        table=Table("table", columns, rows, has_total=True),
    )
    lines = printed(hostile, width=60, title="\x9b2J")
    assert lines[0] == "\\x9b2J: median pass of each arm, in µs"
    assert lines[3:5] == [
        "my\\narm, 1 kernel",
        "\\x1b]0;r\\x07        ################################## 12.00",
    ]


def test_gaps_among_kernels_are_seen() -> None:
    """A cell of kernels says so where gaps take a tenth of it, and not below."""
    stretches = (
        Stretch("kernel", 0, 60),
        Stretch("gap", 60, 65),
        Stretch("kernel", 65, 90),
        Stretch("gap", 90, 95),
        Stretch("kernel", 95, 160),
        Stretch("gap", 160, 169),
        Stretch("kernel", 169, 249),
        Stretch("gap", 249, 300),
    )
    bar = Bar(Row("moe", stretches), Axis(0, 400, 4))
    assert bar.text(PLAIN) == "=#. "
    half = (Stretch("kernel", 0, 49), Stretch("gap", 49, 60), Stretch("hidden", 60, 70))
    assert Bar(Row("moe", half), Axis(0, 100, 1)).text(PLAIN) == "|"


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Stretches one after another, some apart from each other, some of no length."""
    time_ns, stretches = draw(st.integers(-50, 50)), []
    for kind in draw(
        st.lists(st.sampled_from(["kernel", "hidden", "gap"]), min_size=1)
    ):
        time_ns += draw(st.integers(0, 9))
        end_ns = time_ns + draw(st.integers(0 if kind == "kernel" else 1, 9))
        stretches.append(Stretch(kind, time_ns, end_ns))
        time_ns = end_ns
    return Row("moe", tuple(stretches))


@given(rows(), st.integers(1, 60))
def test_no_stretch_disappears_silently(row: Row, cells: int) -> None:
    """Every stretch has a cell, or is counted; and a cell's sign is of its owner."""
    first, last = row.stretches[0].start_ns, row.stretches[-1].end_ns
    bar = Bar(row, Axis(first, max(last, first + 1), cells))
    owning = {id(owner): owner for owner in bar.owners if owner is not None}
    seen = Counter(owner.kind for owner in owning.values())
    assert seen + Counter(bar.untold) == Counter(each.kind for each in row.stretches)
    kinds = {
        " ": None,
        "#": "kernel",
        "|": "kernel",
        "=": "kernel",
        "-": "hidden",
        ".": "gap",
    }
    assert [kinds[sign] for sign in bar.text(PLAIN)] == [
        owner and owner.kind for owner in bar.owners
    ]


@given(rows(), st.integers(1, 60))
def test_a_cell_is_owned_by_what_lies_in_it(row: Row, cells: int) -> None:
    """An owner reaches into its cell, and no cell that is reached into has none."""
    first, last = row.stretches[0].start_ns, row.stretches[-1].end_ns
    bar = Bar(row, Axis(first, max(last, first + 1), cells))
    for cell, owner in enumerate(bar.owners):
        begin_ns, end_ns = bar.axis.edge(cell), bar.axis.edge(cell + 1)
        inside = [
            each
            for each in row.stretches
            if each.start_ns < end_ns and each.end_ns > begin_ns
            if min(each.end_ns, end_ns) > max(each.start_ns, begin_ns)
        ]
        assert (owner in inside) if inside else (owner is None)


@pytest.mark.parametrize("width", [40, 60, 80, 81, 120, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    """From 60 columns on, no line is longer than the terminal is wide."""
    longest = max(map(len, printed(width=width, is_terminal=True)))
    assert longest <= max(width, 60)
