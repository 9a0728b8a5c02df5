import json
from pathlib import Path

import pytest

from layerscope.cli.main import main
from layerscope.run import DRAFT_FOLDER, HEADER_FILE, KERNELS_FILE, RunWriter
from tests import handmade


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hand-made run on disk."""
    return handmade.write(tmp_path / "run")


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on stderr of showing `folder`."""
    code = main(["show", str(folder)])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return code, err


def test_show_prints_the_tables(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the hand-made run are those on paper."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["show", str(folder)]) == 0
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert err == ""
    start = lines.index("regions of reference, a profiled pass, in µs")
    rows = [line.rsplit(maxsplit=7) for line in lines[start + 3 : start + 7]]
    assert rows == [
        ["attention", "1", "22.00", "22.00", "2.00", "20.00", "0.00", "20.00"],
        ["o-proj + all-reduce", "1", "6.00", "6.00", "1.00", "5.00", "0.00", "5.00"],
        ["MoE", "1", "13.00", "13.00", "0.00", "13.00", "0.00", "13.00"],
        ["total", "3", "41.00", "–", "3.00", "38.00", "0.00", "–"],
    ]
    floor = "100 ns (0.25 % of the layer), from reference (A/A)"
    assert f"noise floor      {floor}" in lines
    assert "\x1b" not in out


def test_show_prints_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the same report for programs."""
    assert main(["show", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tables"][1]["rows"][-1]["share_mean_ns"] == 41_000


def test_a_partial_run_is_shown_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partial run says that it is one, and why."""
    folder = handmade.write(
        tmp_path / "run", status="partial", status_reason="interrupted"
    )
    assert main(["show", str(folder)]) == 0
    assert "warning: partial run: interrupted\n" in capsys.readouterr().out


def test_a_missing_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is exit code 2."""
    code, line = refusal(tmp_path / "none", capsys)
    assert code == 2
    assert line == f"error: no run at {tmp_path / 'none'}\n"


def test_a_malformed_header(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run.json that was cut is exit code 1 and names the file."""
    path = folder / HEADER_FILE
    path.write_bytes(path.read_bytes()[:100])
    code, line = refusal(folder, capsys)
    assert code == 1
    assert f"{path} is damaged (" in line


def test_a_truncated_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that was cut is exit code 1 and names the file."""
    path = folder / KERNELS_FILE
    path.write_bytes(path.read_bytes()[:1000])
    code, line = refusal(folder, capsys)
    assert code == 1
    assert f"{path} is damaged (" in line


def test_a_newer_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of a later format is exit code 1 and asks for an upgrade."""
    code, line = refusal(handmade.write(tmp_path, format_version=99), capsys)
    assert code == 1
    assert "written by a newer layerscope (format 99" in line


def test_show_draws_the_median_passes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--timeline draws bars in place of the report, in signs of any encoding."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", str(folder), "--timeline"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0] == "paper-moe, layer 0: median pass of each arm, in µs"
    assert lines[4] == (
        "attention           ..###################                    "
        "22.00   2.00   0.00"
    )
    assert out.replace("µ", "u").isascii()


def test_a_draft_is_drawn_below_its_layer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run of a draft has a timeline of its own, after that of the layer."""
    handmade.write(folder / DRAFT_FOLDER)
    assert main(["show", str(folder), "--timeline"]) == 0
    assert capsys.readouterr().out.count(": median pass of each arm, in µs\n") == 2


def test_a_run_without_kernels_has_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no pass was recorded there is nothing to draw, which is exit code 2."""
    made = handmade.run()
    writer = RunWriter(tmp_path / "bare", made.header)
    writer.add_samples(made.samples)
    writer.checkpoint()
    assert main(["show", str(tmp_path / "bare"), "--timeline"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'bare'} has no recorded pass to draw; layerscope show "
        "tells the rest\n"
    )


def test_a_drawing_is_not_for_programs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--timeline and --json together are refused."""
    assert main(["show", str(folder), "--timeline", "--json"]) == 2
    assert "choose one\n" in capsys.readouterr().err
