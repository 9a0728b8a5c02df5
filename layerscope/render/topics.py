"""What the tables of a report are about, by the columns that they have."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from layerscope.report import Table


class Topic(StrEnum):
    """A section of a page, by its heading, in reading order."""

    ANCHORS = "One pass"
    LEDGER = "Where the change comes from"
    SWITCHES = "Switches, one by one"
    BLOCKS = "Waiting and work of blocks"
    TIMELINE = "Timeline of the median pass"
    SHARES = "Regions"
    SAMPLES = "Distribution of passes"
    EXPERIMENTS = "Regions taken out, and other edits"
    LIMITS = "Limits of the machine"
    MORE = "More"


_TOPICS: Final = {
    "anchor_ns": Topic.ANCHORS,
    "steps": Topic.ANCHORS,  # of a trace, which has no anchors
    "cause": Topic.LEDGER,
    "sum_ns": Topic.LEDGER,
    "benefit_ns": Topic.LEDGER,
    "switch": Topic.SWITCHES,
    "switch_arm": Topic.SWITCHES,
    "dose_ns": Topic.SWITCHES,
    "handover_ns": Topic.BLOCKS,
    "gap_ns": Topic.TIMELINE,
    "lead_ns": Topic.TIMELINE,
    "duration_mean_ns": Topic.SHARES,
    "capture": Topic.SAMPLES,
    "experiment": Topic.EXPERIMENTS,
    "marginal_ns": Topic.EXPERIMENTS,
    "bound": Topic.LIMITS,
    "cold_read_ns": Topic.LIMITS,
}
"""By the key of a column that only tables of that topic have."""


def by_topic(tables: Iterable[Table]) -> dict[Topic, list[Table]]:
    """`tables` under their topics, every topic there; none is left out."""
    found: dict[Topic, list[Table]] = {topic: [] for topic in Topic}
    for table in tables:
        topics = [_TOPICS[each.key] for each in table.columns if each.key in _TOPICS]
        found[topics[0] if topics else Topic.MORE].append(table)
    return found
