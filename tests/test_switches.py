import pytest

from layerscope.switches import Switch


@pytest.mark.parametrize(
    ("values", "off", "ends"),
    [
        (("stock", "off"), "", ("off", "stock")),
        (("full", "some", "none"), "", ("none", "full")),
        (("off", "on"), "off", ("off", "on")),
        (("stock", "off", "late"), "off", ("off", "stock")),
        (("on",), "", ("on", "")),
    ],
)
def test_a_switch_is_off_at_its_last_value_unless_told_otherwise(
    values: tuple[str, ...], off: str, ends: tuple[str, str]
) -> None:
    """On is the first other value, which is the default where that is not off."""
    switch = Switch(name="pdl", values=values, toggles="launch", off=off)
    assert (switch.off_value, switch.on_value) == ends
