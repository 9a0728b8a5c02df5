import polars as pl

from layerscope.experiment import Experiment
from layerscope.report import Interval, Report, Table, build_report
from layerscope.report.experiments import experiment_notes, knock_out_tables
from layerscope.run_header import Trial
from tests import edited, handmade


def taken_out(report: Report) -> list[Table]:
    """The tables of regions that were taken out."""
    return [table for table in report.tables if "taken out" in table.title]


def test_what_was_taken_out_stands_beside_the_shares() -> None:
    """Of an arm that overlaps, its twin's share too, and both knock-outs."""
    reference, fused = taken_out(build_report(edited.run()))
    assert reference.title == "regions of reference taken out, without a profiler"
    assert [column.key for column in reference.columns] == [
        *("region", "share_mean_ns", "serial_share_ns", "serial_ns", "marginal_ns")
    ]
    same = Interval(12_300, 12_300, 12_300)
    assert reference.rows == (("moe", 13_000, None, same, same),)
    assert fused.rows == (
        (
            "moe",
            10_500,
            11_000,
            Interval(9_800, 9_800, 9_800),
            Interval(8_300, 8_300, 8_300),
        ),
    )


def test_without_knock_outs_there_is_no_table() -> None:
    """A run that took nothing out says nothing of it."""
    report = build_report(handmade.run())
    assert taken_out(report) == []
    assert not any("taken out" in note for note in report.notes)


def test_experiments_without_a_result_are_noted_with_their_reason() -> None:
    """Refused ones by arm and reason; those that were measured need no word."""
    refused = [note for note in build_report(edited.run()).notes if "refused" in note]
    assert refused == [
        "fused: refused: without attention: its backend does not declare it skippable"
    ]


def test_experiments_that_ended_alike_share_a_line() -> None:
    """One cause is told once, with all that it took."""
    trials = [
        Trial(
            arm="fused",
            experiment=Experiment(without=region),
            outcome="discarded",
            reason="outputs differed afterwards",
        )
        for region in ("attention", "moe")
    ]
    assert list(experiment_notes(handmade.header(trials=trials), {"fused": ()})) == [
        "fused: discarded: without attention; without moe: outputs differed afterwards"
    ]


def test_what_disabled_nodes_cost_is_told_or_missing() -> None:
    """Subtracted where it was calibrated, and else named as lacking."""
    notes = build_report(edited.run()).notes
    assert (
        "fused: what disabled nodes cost a pass is subtracted from the time without "
        "the region: 300 ns of MoE (1 node)"
    ) in notes
    notes = build_report(edited.run(disabled_costs=[])).notes
    assert "what disabled nodes cost is not known here, and is in no figure" in notes


def test_an_arm_of_which_nothing_was_taken_out_has_no_table() -> None:
    """Only arms with results get one."""
    schema = {"arm": pl.String, "experiment": pl.String, "region": pl.String}
    empty = pl.DataFrame(schema=schema | {"share_mean_ns": pl.Float64})
    assert list(knock_out_tables({"fused": ()}, empty)) == []
