from dataclasses import replace

import pytest

from layerscope.analyze.diagnosis import Diagnosis, Limit, diagnosis_of
from layerscope.analyze.early_starts import EarlyStart, Hindrance
from layerscope.analyze.swept import sweep_run
from layerscope.report.verdicts import early_notes, early_tables, verdicts
from tests import edited, handmade


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    """The fused arm of the run with experiments."""
    return diagnosis_of(sweep_run(edited.run()), "fused")


def test_a_verdict_says_what_to_do_first_and_why(found: Diagnosis) -> None:
    """The limit, the advice, and every number it is from."""
    (fact,) = verdicts({"fused": found})
    assert fact.label == "limit of fused"
    assert fact.text == (
        "compute: make kernels better before their order, those of attention above all "
        "(3.75 times one read of its bytes; 2.50 times the standard chain's legal "
        "early start; of a profiled pass: compute 55.7 %, memory 26.2 %, waiting "
        "13.1 %, launches 4.92 %; 0 of 3 kernels no longer than a launch)"
    )


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        (Limit.MEMORY, "memory: bytes are its largest part; after them comes compute"),
        (Limit.WAITING, "waiting: look at waiting before cutting kernels ("),
        (Limit.LAUNCHES, "launches: merge or drop the shortest kernels"),
        (Limit.COMMUNICATION, "communication: hide or shorten what ranks tell"),
    ],
)
def test_every_limit_has_its_advice(
    found: Diagnosis, limit: Limit, advice: str
) -> None:
    """What to look at first hangs on the limit."""
    (fact,) = verdicts({"fused": replace(found, limit=limit)})
    assert fact.text.startswith(advice)


def test_near_its_bytes_only_fewer_help(found: Diagnosis) -> None:
    """Up to twice one read of them: 30,000 ns are twice 15,000."""
    limits = replace(found.limits, one_read_ns=15_000)
    near = replace(found, limit=Limit.MEMORY, anchor_ns=30_000, limits=limits)
    (fact,) = verdicts({"fused": near})
    assert fact.text.startswith("memory: only fewer bytes help: smaller weights")


def test_what_is_unknown_says_why() -> None:
    """The reason stands in place of an advice, kernels in place of what is not told."""
    (fact,) = verdicts(
        {"reference": diagnosis_of(sweep_run(handmade.run()), "reference")}
    )
    assert fact.text == (
        "unknown: without calibrated reads, bytes and work look alike (of a profiled "
        "pass: kernels 92.7 %, launches 7.32 %; 0 of 3 kernels no longer than a launch)"
    )


def test_longer_kernels_are_told_beside_what_that_gave(found: Diagnosis) -> None:
    """Only where there are some."""
    limits = replace(found.limits, longer_ns=6_000.0)
    (fact,) = verdicts({"fused": replace(found, limits=limits)})
    assert fact.text.endswith(
        "; kernels take 6.000 µs longer than one by one, for an overlap of 4.000 µs)"
    )


EARLY = EarlyStart(
    region="moe",
    kernel="void cutlass::gemm<float, 128>(Params)",
    before="topk",
    nodes=1.0,
    lead_ns=0.0,
    hindrance=Hindrance.ROOM,
    lacks=("registers", "shared memory"),
)


def test_early_starts_are_a_table(found: Diagnosis) -> None:
    """Names without template arguments, and why a kernel did not start early."""
    kinds = (
        EARLY,
        replace(EARLY, hindrance=Hindrance.TRIGGER, lacks=()),
        replace(EARLY, hindrance=Hindrance.NOT_KNOWN, lacks=()),
        replace(EARLY, lead_ns=900.0, hindrance=Hindrance.NONE, lacks=()),
    )
    (table,) = early_tables({"mega": replace(found, early=kinds)})
    assert table.title == "early starts of mega, by programmatic edges"
    assert [row[:4] for row in table.rows] == [
        *[("moe", "cutlass::gemm", 1.0, 0.0)] * 3,
        ("moe", "cutlass::gemm", 1.0, 900.0),
    ]
    assert [row[4] for row in table.rows] == [
        "no registers or shared memory left beside topk",
        "topk triggers late",
        "programmatic but no overlap",
        "",
    ]


def test_long_names_are_cut(found: Diagnosis) -> None:
    """A name that would fill the table ends in an ellipsis."""
    long = replace(EARLY, kernel="k" * 80)
    (table,) = early_tables({"mega": replace(found, early=(long,))})
    assert table.rows[0][1] == "k" * 39 + "…"


def test_without_programmatic_edges_nothing_is_said_of_them(found: Diagnosis) -> None:
    """Neither a table nor a note."""
    none = {"mega": replace(found, early=())}
    assert list(early_tables(none)) == []
    assert list(early_notes(none)) == []
    (note,) = early_notes({"mega": found})
    assert note.startswith("lead: how long before the end of what ran before")
