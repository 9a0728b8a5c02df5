from html.parser import HTMLParser

from layerscope.render.fragment import report_fragment
from layerscope.report import Column, Fact, Interval, Kind, Report, Table, build_report
from tests import handmade


class Cells(HTMLParser):
    """The text of every cell, a row a list."""

    def __init__(self) -> None:
        """Read with `feed`."""
        super().__init__()
        self.rows: list[list[str]] = []
        self._is_open = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """A row or a cell begins."""
        del attrs
        self._is_open = tag in ("td", "th")
        if tag == "tr":
            self.rows.append([])
        elif self._is_open:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """A cell may end."""
        del tag
        self._is_open = False

    def handle_data(self, data: str) -> None:
        """Text, in a cell or elsewhere."""
        if self._is_open:
            self.rows[-1][-1] += data


def rows(html: str) -> list[list[str]]:
    """Every row of every table in `html`."""
    cells = Cells()
    cells.feed(html)
    return cells.rows


def test_tables_tell_what_a_terminal_tells() -> None:
    """The numbers of the hand-made run are those on paper, in one unit a table."""
    html = report_fragment(build_report(handmade.run()))
    found = rows(html)
    assert found[1][:3] == ["reference", "40.00", "40.00…40.00"]
    assert ["MoE", "1", "13.00", "13.00", "0.00", "13.00", "0.00", "13.00"] in found
    assert "regions of reference, a profiled pass, in µs</caption>" in html


def test_names_of_others_are_only_text() -> None:
    """Kernels and arms may be called anything; nothing of it is read as HTML."""
    name = "<script>alert('&')</script>"
    report = Report(
        title=name,
        facts=(Fact(name, name),),
        tables=(Table(name, (Column("name", name, Kind.TEXT),), ((name,),)),),
        headlines=(Fact(name, name),),
        notes=(name,),
        warnings=(name,),
    )
    html = report_fragment(report)
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(&#x27;&amp;&#x27;)") == 10


def test_control_characters_are_written_out() -> None:
    """A page never holds what a terminal would obey."""
    name = "\x1b]0;mine\x07\n"
    html = report_fragment(
        Report(
            title=name,
            facts=(Fact(name, name),),
            tables=(Table(name, (Column("name", name, Kind.TEXT),), ((name,),)),),
            headlines=(Fact(name, name),),
            notes=(name,),
            warnings=(name,),
        )
    )
    assert html.count("\\x1b]0;mine\\x07\\n") == 10
    assert all(line.isprintable() for line in html.split("\n"))


def test_verdicts_and_totals_are_bold_and_numbers_stand_to_the_right() -> None:
    """Columns align, and what counts most is seen first."""
    columns = (Column("arm", "arm", Kind.TEXT), Column("at", "change", Kind.INTERVAL))
    change = Interval(-2_000, -2_100, -1_900, -0.05, "faster")
    html = report_fragment(
        Report("title", (), (Table("table", columns, (("fused", change),)),))
    )
    assert '<th colspan="4" style="text-align:right' in html
    assert '<td style="text-align:left;padding:0.1em 0.6em">fused</td>' in html
    assert 'font-weight:bold">faster</td>' in html


def test_what_is_told_of_a_draft_comes_too() -> None:
    """Parts of a report follow it."""
    part = Report("the draft", (), ())
    html = report_fragment(Report("the layer", (), (), parts=(part,)))
    assert html.index("the layer") < html.index("the draft")
