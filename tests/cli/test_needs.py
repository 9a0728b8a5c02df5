import sys

import pytest

from layerscope.cli.needs import need_torch
from layerscope.errors import MeasurementError


def test_what_a_plain_install_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with the extra that brings it."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MeasurementError) as raised:
        need_torch("backends")
    assert str(raised.value) == (
        "backends needs safetensors; pip install 'layerscope[profile]'"
    )
