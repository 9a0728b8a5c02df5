from dataclasses import replace

import msgspec
import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.doses import DoseTest, Rise
from layerscope.analyze.switches import Mechanisms, mechanisms
from layerscope.analyze.verdicts import Comparison, Verdict
from layerscope.report import build_report
from layerscope.report.document import Cell, Interval
from layerscope.report.switches import switch_headlines, switch_notes, switch_tables
from layerscope.schema import EDGES, KERNELS, empty
from layerscope.switches import SwitchArms
from tests import switched
from tests.switched import OFF, ON, ONLY_A, ONLY_B

FLOOR_NS = 10.0


def found() -> Mechanisms:
    """What the run says of its one backend."""
    (one,) = mechanisms(switched.run(), FLOOR_NS)
    return one


def faster(value: float, base_ns: float) -> Interval:
    """A change without noise."""
    return Interval(value, value, value, value / base_ns, "faster", "")


def time(value: float) -> Interval:
    """A time without noise."""
    return Interval(value, value, value)


def with_doses(rise: Rise, reached_ns: int | None, reason: str = "") -> Mechanisms:
    """As `found`, with another end of the dose test."""
    one = found()
    a, b = one.effects
    assert isinstance(a.doses, DoseTest)
    other = replace(a.doses, rise=rise, reached_ns=reached_ns, reason=reason)
    return replace(one, effects=(replace(a, doses=other), b))


def test_a_switch_has_a_row_with_both_changes_kernels_and_bits() -> None:
    """Worked out by hand from the arms of the run."""
    table, *_ = switch_tables([found()])
    assert table.title == "switches of paper, change that each makes"
    assert table.rows == (
        (
            "a",
            faster(-2_000, 40_000),
            faster(-3_000, 37_000),
            "3 → 3",
            "equal bits, as it says",
        ),
        (
            "b",
            faster(-3_000, 40_000),
            faster(-4_000, 38_000),
            "3 → 2",
            "other bits, it says nothing of them",
        ),
    )


def test_an_arm_has_a_row_with_its_programmatic_edges() -> None:
    """Of how many edges; the change is against all off."""
    table = list(switch_tables([found()]))[1]
    expected: tuple[tuple[Cell, ...], ...] = (
        (OFF, time(40_000), None, 3.0, 0, 3),
        (ONLY_A, time(38_000), faster(-2_000, 40_000), 3.0, 1, 3),
        (ONLY_B, time(37_000), faster(-3_000, 40_000), 2.0, 0, 2),
        (ON, time(34_000), faster(-6_000, 40_000), 2.0, 1, 2),
    )
    assert table.rows == expected


def test_the_twins_and_the_doses_have_tables_of_their_own() -> None:
    """The one says what is left without overlap, the other whether overlap is it."""
    _, _, twins, doses = switch_tables([found()])
    same = Interval(0, 0, 0, 0, "no difference", "the interval includes zero")
    assert twins.rows == (
        ("a", "overlap", same, same),
        ("b", "fusion", faster(-1_000, 45_000), faster(-1_000, 45_000)),
    )
    assert doses.title == "dose test of a, paper: a kernel spins before route"
    assert doses.rows == (
        (0, time(38_000), time(35_000), time(3_000)),
        (2_000, time(41_000), time(37_000), time(4_000)),
        (5_000, time(45_000), time(40_000), time(5_000)),
        (10_000, time(50_000), time(45_000), time(5_000)),
    )


def test_a_cpu_has_neither_twins_nor_doses_nor_edges() -> None:
    """Dashes, and no tables of what was not tried."""
    run = switched.run(trials=[], bits=[])
    bare = replace(run, edges=empty(EDGES), kernels=empty(KERNELS))
    (one,) = mechanisms(bare, FLOOR_NS)
    switches, arms = switch_tables([one])
    assert [row[3:] for row in switches.rows] == [(None, None), (None, None)]
    assert [row[3:] for row in arms.rows] == [(None, None, None)] * 4


def test_the_headlines_say_whether_switches_add_up_and_savings_rise() -> None:
    """One line a backend, and one a dose test."""
    whole, dose = switch_headlines([found()])
    assert (whole.label, whole.text) == (
        "switches of paper",
        (
            "all together −6.000 µs, the sum of each alone −5.000 µs; between the two "
            "is −1.000 µs (−1.000 … −1.000), so they do not add up"
        ),
    )
    assert (dose.label, dose.text) == (
        "dose test of a, paper",
        (
            "the saving rises from +3.000 µs to +5.000 µs by a delay of 5.000 µs, then "
            "stays"
        ),
    )


def test_a_saving_that_rises_on_says_up_to_where() -> None:
    """One that is not known to says why."""
    texts = {
        rise: list(switch_headlines([with_doses(rise, reached_ns, reason)]))[1].text
        for rise, reached_ns, reason in (
            (Rise.GOES_ON, 10_000, ""),
            (Rise.UNKNOWN, None, "needs 3 captures, has 1"),
        )
    }
    assert texts == {
        Rise.GOES_ON: (
            "the saving rises from +3.000 µs to +5.000 µs, and still rises at 10.00 µs"
        ),
        Rise.UNKNOWN: "unknown whether the saving rises: needs 3 captures, has 1",
    }


def without_rise(serial: Comparison | None, reason: str, low_ns: float = 1.0) -> str:
    """The headline of a dose test whose saving of 3 µs does not rise."""
    one = with_doses(Rise.NONE, None, reason)
    a, b = one.effects
    assert a.doses is not None
    first, *others = a.doses.doses
    saving = replace(first.saving_ns, low=low_ns)
    doses = replace(a.doses, doses=(replace(first, saving_ns=saving), *others))
    last = replace(a.last, serial=serial)
    changed = replace(one, effects=(replace(a, last=last, doses=doses), b))
    return list(switch_headlines([changed]))[1].text


def test_a_saving_that_does_not_rise_is_held_against_the_twins() -> None:
    """It has another cause only as far as it stays without programmatic edges."""
    a, b = found().effects
    gone, stays = a.last.serial, b.last.serial
    assert gone is not None
    assert stays is not None
    difference = replace(stays.difference, value=2_000.0)
    costs = replace(stays, verdict=Verdict.SLOWER, difference=difference)
    unknown = replace(stays, verdict=Verdict.UNKNOWN)
    wide = replace(gone, difference=replace(gone.difference, low=-3_000.0))
    reason = "within the noise floor"
    start = (
        "the saving of +3.000 µs does not rise up to a delay of 10.00 µs (within the "
        "noise floor); "
    )
    either = "it is no overlap, or the delay gives that no more room"
    assert [
        without_rise(serial, reason, low_ns=2_900.0)
        for serial in (gone, stays, costs, wide, unknown, None)
    ] == [
        start + "without programmatic edges there is no difference, so it is overlap, "
        "to which the delay gives no more room",
        start + "without programmatic edges it saves 1.000 µs: so much is no overlap",
        start + "without programmatic edges it costs 2.000 µs: overlap is more than it",
        start + either,
        start + either,
        start + either,
    ]


def test_a_saving_that_falls_or_is_none_is_told_as_such() -> None:
    """Nothing is said of the cause of what is not there."""
    a, _ = found().effects
    assert without_rise(a.last.serial, "it falls") == (
        "the saving of +3.000 µs does not rise up to a delay of 10.00 µs (it falls); "
        "without programmatic edges there is no difference, so it is overlap, to which "
        "the delay gives no more room"
    )
    assert without_rise(a.last.serial, "it falls", low_ns=-1.0) == (
        "the saving of +3.000 µs is not told from zero"
    )


def test_a_switch_that_does_more_than_move_work_is_told() -> None:
    """Of a switch that says it only does that, with the arms that show it."""
    one = found()
    a, b = one.effects
    lying = replace(b, switch=msgspec.structs.replace(b.switch, kind="overlap"))
    assert "it does more than move work" not in " ".join(switch_notes([one]))
    notes = list(switch_notes([replace(one, effects=(a, lying))]))
    assert notes[-1] == (
        "paper: b makes a difference without programmatic edges too (paper all off and "
        "paper:a=off): it does more than move work, or its two builds differ, as two "
        "of the same arm may"
    )


def test_a_switch_whose_arm_was_left_out_is_told() -> None:
    """A dash alone would not say between which."""
    run = switched.run()
    left = replace(run, samples=run.samples.filter(pl.col("arm") != ONLY_A))
    notes = list(switch_notes(mechanisms(left, FLOOR_NS)))
    assert notes[-2:] == [
        "paper: a was not measured between paper all off and paper:b=off",
        "paper: b was not measured between paper:b=off and paper",
    ]


def test_nothing_is_noted_where_nothing_was_taken_apart() -> None:
    """Other reports do not change."""
    assert list(switch_notes([])) == []


def test_arms_of_switches_are_in_their_own_tables_only() -> None:
    """The layer's table, its ledgers and regions are of the arms that were given."""
    report = build_report(switched.run())
    layer, *others = report.tables
    assert [row[0] for row in layer.rows] == [ON, "paper (A/A)"]
    titles = [table.title for table in others]
    assert sum("regions of" in title for title in titles) == 2
    assert [title for title in titles if "switches of paper" in title] == [
        "switches of paper, change that each makes",
        "arms of the switches of paper, change against all off",
        "switches of paper without programmatic edges, change that each makes",
    ]
    assert not [title for title in titles if title.startswith("edited graphs")]


def test_a_second_build_is_told() -> None:
    """With its interval; a run without one has no such note."""
    one = replace(found(), builds=Estimate(1_070.0, 910.0, 1_210.0, 6, 6.0))
    notes = list(switch_notes([one]))
    assert (
        "two builds of paper all off differ by 1.070 µs (0.910 … 1.210): what a switch "
        "changes within that is no difference"
    ) in notes
    assert not [note for note in switch_notes([found()]) if "two builds" in note]


def test_an_idle_switch_has_a_row_with_the_reason() -> None:
    """In the place of figures; there is such a column only where there is one."""
    idle = SwitchArms(name="c", idle="there are no experts")
    table, *others = switch_tables([replace(found(), idle=(idle,))])
    plain, *rest = switch_tables([found()])
    assert table.columns[:-1] == plain.columns
    assert (table.columns[-1].key, table.columns[-1].title) == (
        "idle",
        "changes nothing here",
    )
    nothing = (None, None, None, None)
    assert table.rows == (
        *((*row, None) for row in plain.rows),
        ("c", *nothing, "there are no experts"),
    )
    assert others == rest


def test_idle_switches_alone_have_one_table_and_no_notes() -> None:
    """There is nothing to read in it but the reasons."""
    idle = SwitchArms(name="c", idle="there are no experts")
    one = Mechanisms("paper", (), (), None, None, (idle,))
    (table,) = switch_tables([one])
    assert [row[0] for row in table.rows] == ["c"]
    assert list(switch_notes([one])) == []
    assert list(switch_headlines([one])) == []
