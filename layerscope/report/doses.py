"""What the dose test of a switch says, in a sentence."""

from typing import Final

from layerscope.analyze.doses import DoseTest, Rise
from layerscope.analyze.statistics import Comparison, Verdict
from layerscope.units import format_ns

_EITHER: Final = "it is no overlap, or the delay gives that no more room"


def rise_text(test: DoseTest, serial: Comparison | None) -> str:
    """Whether the saving rises, and if not, what that leaves open.

    Args:
        test: of a switch beside all others.
        serial: what the switch does where no edge is programmatic; None if not known.
    """
    first, longest = test.doses[0], test.doses[-1]
    start = format_ns(first.saving_ns.value, signed=True)
    if test.rise is Rise.NONE and first.saving_ns.low <= 0:
        return f"the saving of {start} is not told from zero"
    if test.rise is Rise.NONE:
        return (
            f"the saving of {start} does not rise up to a delay of "
            f"{format_ns(longest.delay_ns)} ({test.reason}); "
            f"{_twins(serial, first.saving_ns.low)}"
        )
    if test.rise is Rise.UNKNOWN:
        return f"unknown whether the saving rises: {test.reason}"
    end = format_ns(longest.saving_ns.value, signed=True)
    at = format_ns(test.reached_ns or 0)
    if test.rise is Rise.STAYS:
        return f"the saving rises from {start} to {end} by a delay of {at}, then stays"
    return f"the saving rises from {start} to {end}, and still rises at {at}"


def _twins(serial: Comparison | None, least_ns: float) -> str:
    """What the twins say of a saving of at least `least_ns` that does not rise.

    It may be no overlap, or overlap that a delay gives no more room: early work that is
    done in time without one, or a delay that is hidden itself.
    """
    if serial is None or serial.verdict is Verdict.UNKNOWN:
        return _EITHER
    if serial.verdict is Verdict.NO_DIFFERENCE:
        left_ns = max(0.0, -serial.difference.low)  # the most that the twins may save
        if left_ns >= least_ns:
            return _EITHER
        return (
            "without programmatic edges there is no difference, so it is overlap, to "
            "which the delay gives no more room"
        )
    other = format_ns(abs(serial.difference.value))
    if serial.verdict is Verdict.SLOWER:
        return f"without programmatic edges it costs {other}: overlap is more than it"
    return f"without programmatic edges it saves {other}: so much is no overlap"
