from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from layerscope.cli.options import takes


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Options of a command that only this test has."""

    width: Annotated[int, typer.Option(help="How wide it is.")] = 3
    is_flat: Annotated[bool, typer.Option("--flat")] = False


seen: list[tuple[Sizes, list[str]]] = []


@takes(Sizes)
def command(options: Sizes, arguments: list[str]) -> None:
    """Remember sizes."""
    seen.append((options, arguments))


def test_a_command_gets_its_options_as_one_value() -> None:
    """Typed options arrive in the dataclass, beside the arguments as typed."""
    app = typer.Typer()
    app.command()(command)
    typed = ["--width", "7", "--flat"]
    outcome = CliRunner().invoke(app, typed, obj=typed)
    assert outcome.exit_code == 0
    assert seen.pop() == (Sizes(width=7, is_flat=True), typed)


def test_help_comes_from_the_dataclass() -> None:
    """The help shows each field's text, its default, and the function's docstring."""
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    text = CliRunner().invoke(app, ["--help"]).output
    assert "Remember sizes." in text
    assert "How wide it is.  [default: 3]" in text
