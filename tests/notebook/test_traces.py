from pathlib import Path

import pytest

import layerscope
from layerscope import InputError, Run
from layerscope.ingest.traced_runs import read_as_run

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
EAGER = TRACES / "made-eager.json.gz"


def test_a_trace_is_a_run_with_a_face() -> None:
    """It is what the command line compares, by a path of either type."""
    found = layerscope.load_trace(str(EAGER))
    assert isinstance(found, Run)
    expected = read_as_run(EAGER)
    assert found.kernels.equals(expected.kernels)
    assert "134.4 µs a layer" in found._repr_html_()
    assert found.path == EAGER


def test_rules_of_ones_own_come_first(tmp_path: Path) -> None:
    """A table in a file, as with ``--rules``."""
    rules = tmp_path / "rules.toml"
    rules.write_text(
        "[[rule]]\nname = 'mine'\npattern = 'nvjet'\nrole = 'mine'\nregion = 'moe'\n",
        encoding="utf-8",
    )
    found = layerscope.load_trace(EAGER, rules=str(rules))
    assert "mine" in found.kernels["role"].unique().to_list()


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    """One line says why."""
    with pytest.raises(InputError, match="nothing-here"):
        layerscope.load_trace(tmp_path / "nothing-here")
