import pytest

from layerscope.errors import MeasurementError
from layerscope.render import chart_scripts
from layerscope.render.chart_scripts import ChartScripts


def test_scripts_are_whole() -> None:
    """They define what the page calls, and close no script element."""
    with ChartScripts() as scripts:
        text = scripts.text()
    assert "window.vegaEmbed=" in text
    assert "</script" not in text.lower()


def test_the_process_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong elsewhere, nothing is left running."""
    monkeypatch.setattr(chart_scripts, "_PROGRAM", "import time; time.sleep(600)")
    with ChartScripts() as scripts:
        process = scripts._process
        assert process.poll() is None
    assert process.poll() is not None


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of what the process says, and what to do."""
    monkeypatch.setattr(chart_scripts, "_PROGRAM", "raise OSError('no glyphs')")
    with ChartScripts() as scripts, pytest.raises(MeasurementError) as raised:
        scripts.text()
    assert str(raised.value) == (
        "vl-convert cannot bundle its scripts (OSError: no glyphs); install it anew"
    )
