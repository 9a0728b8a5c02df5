from layerscope.render.topics import Topic, by_topic
from layerscope.report import Column, Kind, Table, build_report
from tests import edited
from tests.report.run_evidence import of_captures, of_kernels


def test_every_table_has_its_topic() -> None:
    """Tables stand where a reader looks for them, and in the report's order."""
    run = edited.run()
    tables = (*build_report(run).tables, *of_kernels(run), *of_captures(run))
    found = {
        topic: [table.title.partition(",")[0] for table in under]
        for topic, under in by_topic(tables).items()
    }
    assert found == {
        Topic.ANCHORS: ["layer: one pass"],
        Topic.LEDGER: [
            "ledger of fused",
            "ledger of fused by region",
            "overlap of fused and of reference",
        ],
        Topic.SWITCHES: [],
        Topic.BLOCKS: [],
        Topic.TIMELINE: [
            "early starts of fused",
            "kernels of reference",
            "kernels of fused",
        ],
        Topic.SHARES: [
            "regions of reference",
            "regions of fused",
            "regions of reference (A/A)",
        ],
        Topic.SAMPLES: ["anchors by capture"],
        Topic.EXPERIMENTS: [
            "regions of reference taken out",
            "regions of fused taken out",
        ],
        Topic.LIMITS: ["distance to bounds", "required bytes against cold reads"],
        Topic.MORE: [],
    }


def test_no_table_is_lost() -> None:
    """A table of columns that nobody knows comes last."""
    strange = Table("strange", (Column("odd", "odd", Kind.TEXT),), (("one",),))
    assert by_topic([strange])[Topic.MORE] == [strange]
