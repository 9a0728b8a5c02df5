"""Ledgers made by hand: a base of 100 µs, and changes in µs by cause."""

from collections.abc import Mapping
from typing import Any

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Ledger, Line
from layerscope.analyze.statistics import Comparison, Verdict

BASE_US = 100


def exactly(value_us: float) -> Estimate:
    """An estimate that is off by nothing, in ns."""
    value_ns = 1_000.0 * value_us
    return Estimate(value_ns, value_ns, value_ns, 80, 80.0)


def ledger(
    change_us: float,
    lines_us: Mapping[Cause, float],
    **fields: Any,  # noqa: ANN401 (any field of a ledger)
) -> Ledger:
    """The ledger of a change, by experiments; what no line has is the residual."""
    residual_us = change_us - sum(lines_us.values())
    values: dict[str, Any] = {
        "base": "base",
        "other": "other",
        "basis": "experiments",
        "change": exactly(change_us),
        "base_ns": 1_000.0 * BASE_US,
        "lines": tuple(
            Line(cause, exactly(lines_us.get(cause, 0.0))) for cause in Cause
        ),
        "residual": exactly(residual_us),
        "regions": {},
        "hidden": {"base": 0.0, "other": 40_000.0},
    }
    return Ledger(**(values | fields))


def comparison(change_us: float, verdict: Verdict = Verdict.FASTER) -> Comparison:
    """The change of the anchors, and what was said of it."""
    return Comparison(exactly(change_us), change_us / BASE_US, verdict, "")
