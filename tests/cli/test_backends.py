import json
from pathlib import Path

import pytest

from layerscope.cli.main import main
from tests import plugins

SMALL = ("backends", "--device", "cpu", "--model", "tiny-moe")
CHOOSY = """
    from layerscope.layers.spec import Family
    from layerscope.plugin import BackendSpec, Requires
    from layerscope.regions import Region

    BACKEND = BackendSpec(
        name="cli-choosy",
        api_version=1,
        summary="a backend on paper",
        covers={Family.QWEN3_MOE: (Region.MOE,)},
        build=print,
        requires=Requires(tp_sizes=(2,), max_rows=6),
    )
"""


@pytest.fixture
def _choosy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that runs six rows on one rank of two."""
    plugins.install(tmp_path, "cli-choosy", CHOOSY)
    monkeypatch.syspath_prepend(tmp_path)


def rows(capsys: pytest.CaptureFixture[str], title: str) -> list[dict[str, str]]:
    """The rows of a table that was printed as JSON; none where there is no table."""
    tables = json.loads(capsys.readouterr().out)["tables"]
    return [row for table in tables if table["title"] == title for row in table["rows"]]


@pytest.mark.usefixtures("_choosy")
def test_backends_are_checked_against_the_layer_that_is_asked_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The options are those of profile, and what fits one layer is refused another."""
    assert main([*SMALL, "--json", "--requests", "2"]) == 0
    assert rows(capsys, "why not here") == [
        {"backend": "cli-choosy", "reason": "needs tensor-parallel size 2, not 1"},
        {"backend": "cli-choosy", "reason": "runs at most 6 rows, not 12"},
    ]
    assert main([*SMALL, "--json", "--tp", "2", "--shard-shaped"]) == 0
    assert rows(capsys, "why not here") == []


@pytest.mark.usefixtures("_choosy")
def test_tables_have_titles_without_units(capsys: pytest.CaptureFixture[str]) -> None:
    """No table has a time in it, and every reason is there."""
    assert main([*SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "backends, from the entry points layerscope.backends"
    assert {"backends", "why not here", "coverage", "bounds of numerics"} <= set(lines)
    assert any("needs tensor-parallel size 2, not 1" in line for line in lines)


def test_a_layer_that_does_not_exist_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The options are checked as those of profile are."""
    assert main([*SMALL, "--layer", "9"]) == 2
    assert main([*SMALL, "--tp", "2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(";")[0] for line in err.splitlines()] == [
        "error: layer 9 is out of range: tiny-moe has layers 0 to 3",
        "error: --tp 2 needs 2 GPUs, which cannot be measured yet",
    ]


def test_two_backends_of_one_name_are_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1 and one line that names both distributions."""
    plugins.install(tmp_path, "cli-one", "", backend="fused")
    plugins.install(tmp_path, "cli-two", "", backend="fused", version="2.0")
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*SMALL]) == 1
    assert capsys.readouterr().err == (
        "error: two backends are called fused: cli_one:BACKEND of cli-one 1.0 and "
        "cli_two:BACKEND of cli-two 2.0; uninstall one of them\n"
    )
