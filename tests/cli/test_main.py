import sys

import pytest

import layerscope
from layerscope.cli import main as main_module
from layerscope.cli.main import entry_point, main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version and ends well."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"layerscope {layerscope.__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """--help names every command with a line of text, none of which is cut."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "profile Measure a decoder layer, or your own code, by region." in lines
    assert "show Print the report of a recorded run." in lines
    assert "compare Say why one arm is faster, or how runs or traces differ." in (lines)
    assert "analyze Find the layers in a trace of a model, and what it waits for." in (
        lines
    )
    assert "doctor Say what can be measured here, what not, and the fix." in lines
    assert not any("..." in line for line in lines[lines.index("Commands:") :])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: layerscope"),
        (["shwo"], "No such command 'shwo'"),
        (["show"], "Missing argument 'RUN'"),
        (["show", "a", "--colour"], "No such option"),
        (["profile", "--layer", "first"], "Invalid value for '--layer'"),
        (["profile", "--dtype", "int3"], "Invalid value for '--dtype'"),
    ],
)
def test_usage_errors(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the parser refuses is exit code 2 and says what is wrong."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert message in out + err


def test_an_interrupt_anywhere_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C outside of any command's care has the usual exit code."""

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "app", interrupted)
    assert main([]) == 130


def test_the_program_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed program takes the process's arguments and exits with the code."""
    monkeypatch.setattr(sys, "argv", ["layerscope", "show", "/nowhere/run"])
    with pytest.raises(SystemExit) as caught:
        entry_point()
    assert caught.value.code == 2
