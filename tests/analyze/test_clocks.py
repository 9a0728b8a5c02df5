import polars as pl
import pytest

from layerscope.analyze.clocks import clock_doubt, throttle_reasons
from layerscope.schema import SAMPLES

Row = tuple[str, str, int | None, int | None]  # arm, experiment, SM clock, reasons


def samples(*rows: Row) -> pl.DataFrame:
    """What `clock_doubt` reads of samples."""
    names = ("arm", "experiment", "sm_clock_mhz", "throttle_reasons")
    return pl.DataFrame(
        rows, schema={name: SAMPLES[name] for name in names}, orient="row"
    )


def test_one_percent_is_no_doubt() -> None:
    """Clocks up to one percent apart leave a difference to other causes."""
    found = samples(("a", "captured", 1_000, 0), ("b", "captured", 1_010, 0))
    assert clock_doubt(found) == ""


def test_more_than_one_percent_is() -> None:
    """Beyond it, the doubt names both clocks and arms."""
    found = samples(("a", "captured", 1_980, 0), ("b", "captured", 1_755, 0))
    assert clock_doubt(found) == "clock: 1,755 MHz in b, 1,980 MHz in a"


def test_medians_are_compared() -> None:
    """A single low reading is no lower clock."""
    rows = [("b", "captured", clock, 0) for clock in (1_980, 1_980, 300)]
    assert clock_doubt(samples(("a", "captured", 1_980, 0), *rows)) == ""


def test_twins_are_compared_too() -> None:
    """The serial twin of an arm must have run at the clock of the others."""
    found = samples(("a", "captured", 1_980, 0), ("a", "serial", 1_900, 0))
    assert clock_doubt(found) == "clock: 1,900 MHz in a, 1,980 MHz in a"


@pytest.mark.parametrize(
    ("bits", "doubt"),
    [
        (0x001, ""),
        (0x004, "clock: held down by software power cap"),
        (0x049, "clock: held down by hardware slowdown, hardware thermal slowdown"),
        (0x200, "clock: held down by unknown reason 0x200"),
    ],
)
def test_a_throttle_reason_is_a_doubt(bits: int, doubt: str) -> None:
    """Any reason but idling is one, whatever the clock."""
    found = samples(("a", "captured", 1_980, 0), ("b", "captured", 1_980, bits))
    assert clock_doubt(found) == doubt


def test_without_readings_there_is_no_doubt() -> None:
    """Where nothing can read a clock, nothing is held against it."""
    assert clock_doubt(samples(("a", "captured", None, None))) == ""
    assert clock_doubt(samples()) == ""
    assert throttle_reasons(samples()) == []
