from dataclasses import replace

import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Corners, Ledger, Line
from layerscope.analyze.statistics import Comparison, Verdict
from layerscope.report.document import Fact, Interval
from layerscope.report.ledger import headline, ledger_notes, ledger_tables

AGAINST = "against standard"
CHANGE = "−14.2 µs (−29.0 %, 95 % −14.6 … −13.8)"


def about(value: float, half: float = 0) -> Estimate:
    """An estimate with as much to either side."""
    return Estimate(value, value - half, value + half, 128, 100.0)


CHANGES = {
    Cause.OVERLAP: about(-9_100, 300),
    Cause.LAUNCHES: about(-3_000, 100),
    Cause.GAPS: about(-400, 50),
    Cause.SAME: about(20, 30),
    Cause.FASTER: about(-800, 60),
    Cause.MERGED: about(-1_000, 20),
    Cause.ADDED: about(100, 10),
    Cause.REPLACED: about(0),
}
CORNERS = Corners(
    base=about(49_000, 100),
    base_serial=about(53_000, 100),
    other=about(34_800, 100),
    other_serial=about(47_900, 100),
    base_benefit=about(4_000, 150),
    other_benefit=about(13_100, 150),
)
LEDGER = Ledger(
    base="standard",
    other="mega",
    basis="experiments",
    change=about(-14_200, 400),
    base_ns=49_000,
    lines=tuple(Line(cause, change) for cause, change in CHANGES.items()),
    residual=about(-20, 400),
    regions={
        "other": {Cause.LAUNCHES: about(-500)},
        "moe": {Cause.LAUNCHES: about(-2_000), Cause.MERGED: about(-1_000)},
        "attention": {Cause.LAUNCHES: about(-500), Cause.GAPS: about(-400)},
    },
    corners=CORNERS,
    notes=("what the profiler costs is not known",),
)
OBSERVED = replace(
    LEDGER,
    basis="observed",
    change=about(-15_000, 100),
    lines=LEDGER.lines[1:],
    corners=None,
    hidden={"standard": 0.0, "mega": 2_500.0},
    notes=(),
)
FASTER = Comparison(about(-14_200, 400), -14_200 / 49_000, Verdict.FASTER, "")


def test_a_headline_tells_the_change_and_its_causes() -> None:
    """Fusion is a sum of three lines; parts that show as nothing are left out."""
    assert headline(LEDGER, FASTER, AGAINST) == Fact(
        "mega against standard",
        "−14.2 µs (−29.0 %, 95 % −14.6 … −13.8): overlap −9.1, fusion −3.9, shorter "
        "gaps −0.4, faster kernels −0.8, residual 0.0 ± 0.4",
    )


def test_without_anchors_a_headline_has_the_change_of_the_ledger() -> None:
    """A ledger is told even where nothing was compared."""
    told = headline(LEDGER, None, AGAINST).text
    assert told.startswith(f"{CHANGE}: overlap −9.1, fusion −3.9")


def test_an_observed_headline_tells_what_its_parts_add_up_to() -> None:
    """Anchors say how much, records from what."""
    assert headline(OBSERVED, FASTER, AGAINST).text == (
        "−14.2 µs (−29.0 %, 95 % −14.6 … −13.8); in records −15.0: fusion −3.9, "
        "shorter gaps −0.4, faster kernels −0.8, residual 0.0 ± 0.4"
    )


def test_large_changes_keep_a_decimal_in_their_parts() -> None:
    """Three digits of 142 µs would round a residual away."""
    change = about(-142_000, 400)
    found = replace(LEDGER, change=change, residual=about(300, 400))
    compared = replace(FASTER, difference=change)
    assert headline(found, compared, AGAINST).text.endswith("residual +0.3 ± 0.4")


@pytest.mark.parametrize(
    ("verdict", "reason", "told"),
    [
        (
            Verdict.NO_DIFFERENCE,
            "within the noise floor",
            f"no difference, within the noise floor: {CHANGE}",
        ),
        (
            Verdict.UNKNOWN,
            "needs 3 captures, has 2",
            f"{CHANGE}, unknown: needs 3 captures, has 2",
        ),
    ],
)
def test_what_is_no_clear_difference_has_no_causes(
    verdict: Verdict, reason: str, told: str
) -> None:
    """A difference that is none, or may be none, is not explained."""
    compared = replace(FASTER, verdict=verdict, reason=reason)
    assert headline(LEDGER, compared, AGAINST).text == told


def test_what_cannot_be_attributed_says_why() -> None:
    """No parts, no tables, and a note in their place."""
    doubt = "clock: 1,755 MHz in mega, 1,980 MHz in standard"
    found = replace(LEDGER, unknown=doubt)
    assert headline(found, FASTER, AGAINST).text == (
        f"{CHANGE}, unknown from what: {doubt}"
    )
    assert list(ledger_tables(found, AGAINST)) == []
    assert list(ledger_notes(found)) == [f"mega: no ledger: {doubt}"]


def test_the_table_of_causes() -> None:
    """Causes in their order, then the residual; the last row is what they add up to."""
    causes, *_ = ledger_tables(LEDGER, AGAINST)
    assert causes.title == "ledger of mega, by experiments, against standard"
    assert [column.key for column in causes.columns] == ["cause", "change_ns"]
    assert causes.has_total
    assert [row[0] for row in causes.rows] == [*CHANGES, "residual", "change"]
    assert causes.rows[0][1] == Interval(-9_100, -9_400, -8_800, -9_100 / 49_000)
    assert causes.rows[-1][1] == Interval(-14_200, -14_600, -13_800, -14_200 / 49_000)
    parts = [row[1].value for row in causes.rows if isinstance(row[1], Interval)]
    assert sum(parts[:-1]) == parts[-1]


def test_the_table_of_regions() -> None:
    """Regions as they run, `other` last; causes that no region has are left out."""
    _, regions, _ = ledger_tables(LEDGER, AGAINST)
    assert regions.title == (
        "ledger of mega by region, records of serial twins, against standard"
    )
    assert [column.key for column in regions.columns] == [
        *("region", "launches_ns", "gaps_ns", "merged_ns", "sum_ns")
    ]
    assert regions.rows == (
        ("attention", -500, -400, None, -900),
        ("moe", -2_000, None, -1_000, -3_000),
        ("other", -500, None, None, -500),
    )


def test_the_two_by_two() -> None:
    """Both arms, captured and serial, and what overlap gives each."""
    *_, corners = ledger_tables(LEDGER, AGAINST)
    assert [column.key for column in corners.columns] == [
        *("arm", "captured_ns", "serial_ns", "benefit_ns")
    ]
    assert corners.rows == (
        (
            "standard",
            Interval(49_000, 48_900, 49_100),
            Interval(53_000, 52_900, 53_100),
            Interval(4_000, 3_850, 4_150),
        ),
        (
            "mega",
            Interval(34_800, 34_700, 34_900),
            Interval(47_900, 47_800, 48_000),
            Interval(13_100, 12_950, 13_250),
        ),
    )


def test_an_observed_ledger_has_no_two_by_two() -> None:
    """Without twins there is nothing that overlap could be held against."""
    causes, regions = ledger_tables(OBSERVED, AGAINST)
    assert causes.title == "ledger of mega, in records, against standard"
    assert "records of captured graphs" in regions.title
    assert Cause.OVERLAP not in [row[0] for row in causes.rows]


def test_notes_tell_the_range_of_overlap_and_what_is_hidden() -> None:
    """The range by experiments, hidden time where it is no line."""
    assert list(ledger_notes(LEDGER)) == [
        (
            "overlap gives 4.000 µs to the kernels of standard and 13.10 µs to those "
            "of mega: between the two is what it is worth, in whichever order causes "
            "are taken"
        ),
        "mega: what the profiler costs is not known",
    ]
    assert list(ledger_notes(OBSERVED)) == [
        (
            "hidden behind other kernels, a pass: standard 0 ns, mega 2.500 µs; that "
            "is no line of an observed ledger"
        )
    ]


def test_jitter_is_not_told_as_hidden() -> None:
    """Half a per cent of a pass may overlap where nothing does."""
    jitter = replace(OBSERVED, hidden={"standard": 0.0, "mega": 245.0})
    assert list(ledger_notes(jitter)) == []
