import json
from pathlib import Path

import polars as pl
import pytest

from layerscope.cli.main import main
from layerscope.run import RunWriter
from tests import handmade


def write(path: Path, by_ns: int = 0, captures: int = 5) -> str:
    """The hand-made run with more captures, its fused arm slower by `by_ns`."""
    run = handmade.run()
    more = pl.when(pl.col("arm") == "fused").then(pl.col("passes") * by_ns).otherwise(0)
    first = run.samples.filter(pl.col("capture") == 0).with_columns(
        duration_ns=pl.col("duration_ns") + more
    )
    writer = RunWriter(path, run.header)
    for capture in range(captures):
        writer.add_samples(first.with_columns(capture=pl.lit(capture, pl.Int64)))
    writer.checkpoint()
    return str(path)


@pytest.fixture
def base(tmp_path: Path) -> str:
    """The run that others are judged by."""
    return write(tmp_path / "base")


@pytest.mark.parametrize(
    ("judged", "ends"),
    [
        ((0, 5), (0, "pass")),
        ((900, 5), (3, "fail")),
        ((900, 4), (4, "unknown")),
    ],
)
def test_the_exit_code_is_the_outcome(
    tmp_path: Path,
    base: str,
    capsys: pytest.CaptureFixture[str],
    judged: tuple[int, int],
    ends: tuple[int, str],
) -> None:
    """0 for a pass, 3 for a regression, 1 for what cannot be told; a line an arm."""
    run, (code, outcome) = write(tmp_path / "run", *judged), ends
    assert main(["gate", run, "--against", base, "--arm", "fused"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    assert out.startswith(f"{outcome}: fused 30.")


def test_more_may_be_allowed(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 % are no regression where 3.5 % are allowed."""
    run = write(tmp_path / "run", 900)
    arguments = ["gate", run, "--against", base, "--max-regression"]
    assert main([*arguments, "3.5 %"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        "pass: fused 30.90 µs against 30.00 µs, +900 ns (+3.00 %, 95 % +900 … +900); "
        "allowed +3.50 %, noise floor 100 ns"
    )
    assert main([*arguments, "2.9%"]) == 3


def test_json_has_the_numbers_and_the_same_exit_code(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For programs that want more than the code."""
    run = write(tmp_path / "run", 900)
    assert main(["gate", run, "--against", base, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    reference, fused = document["tables"][0]["rows"]
    assert (reference["outcome"], fused["outcome"]) == ("pass", "fail")
    assert fused["change_ns"]["relative"] == 0.03


@pytest.mark.parametrize("text", ["2", "two%", "-1%", "nan%", "inf%", "2%%", "%"])
def test_what_is_no_percentage_is_refused(
    base: str, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """A bare number could be meant as a fraction, so it is not guessed at."""
    assert main(["gate", base, "--against", base, "--max-regression", text]) == 2
    assert capsys.readouterr().err == (
        f"error: --max-regression {text!r} is no percentage; write 2%\n"
    )


def test_warnings_go_beside_the_lines(
    tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partial run is judged by what it has, and said to be partial on stderr."""
    run = handmade.write(tmp_path / "run", status="partial", status_reason="killed")
    assert main(["gate", str(run), "--against", base]) == 4
    out, err = capsys.readouterr()
    assert out.count("unknown: ") == 2
    assert f"{run} is partial: killed\n" in err


def test_a_base_must_be_given(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no default to be judged by."""
    assert main(["gate", base]) == 2
    assert "Missing option '--against'" in capsys.readouterr().err
