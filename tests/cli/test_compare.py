import json
from pathlib import Path

import msgspec
import pytest

from layerscope.cli.main import main
from layerscope.study import Arm
from tests import handmade


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hand-made run on disk."""
    return handmade.write(tmp_path / "run")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of what is refused with exit code 2."""
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").removesuffix("\n")


def wider(path: Path) -> Path:
    """The hand-made run with eight rows, on disk."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, requests=2, draft_tokens=3)
    return handmade.write(path, study=msgspec.structs.replace(study, spec=spec))


def test_two_arms_of_a_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headline comes first, then the ledger."""
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["compare", str(folder), "--arms", "reference, fused"]) == 0
    title, headline, *lines = capsys.readouterr().out.splitlines()
    assert title == "paper-moe, layer 0: fused against unfused torch (reference)"
    assert headline.startswith(
        "fused against unfused torch (reference): −10.0 µs (−25."
    )
    assert (
        "ledger of fused, in records, against unfused torch (reference), in µs" in lines
    )


def test_the_arms_of_a_run_of_two_need_no_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second against the first, as if both had been named."""
    assert main(["compare", str(folder)]) == 0
    told = capsys.readouterr().out
    assert main(["compare", str(folder), "--arms", "reference,fused"]) == 0
    assert capsys.readouterr().out == told


def test_of_more_arms_two_must_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names all that there are."""
    arms = (*handmade.study().arms, Arm(backend="mega", switches={"pdl": "early"}))
    study = msgspec.structs.replace(handmade.study(), arms=arms)
    run = str(handmade.write(tmp_path / "run", study=study))
    assert refusal(capsys, run) == (
        f"{run} has the arms reference, fused, mega:pdl=early; pick two with --arms A,B"
    )


@pytest.mark.parametrize("arms", ["fused", "a,b,c", "fused,", ","])
def test_other_than_two_arms_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arms: str
) -> None:
    """A comparison is of a pair."""
    assert refusal(capsys, str(folder), "--arms", arms) == (
        f"--arms {arms!r} does not name two arms; write A,B"
    )


def test_two_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All arms of equal names, and as JSON for programs."""
    again = handmade.write(tmp_path / "again")
    assert main(["compare", str(folder), str(again), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["headlines"]) == ["reference", "fused"]
    assert document["differences"] == []
    (row, _) = document["tables"][0]["rows"]
    assert row["base_ns"]["value"] == row["other_ns"]["value"] == 40_000
    assert row["change_ns"]["verdict"] == "no difference"


def test_runs_of_different_work_are_refused_unless_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 with every field; --anyway compares them and marks it."""
    other = str(wider(tmp_path / "wider"))
    assert refusal(capsys, str(folder), other) == (
        "the runs differ in work or machine: rows: 6 against 8; requests: 1 against 2; "
        "draft_tokens: 5 against 3; --anyway compares them all the same"
    )
    assert main(["compare", str(folder), other, "--anyway", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["title"].endswith("though they differ in work or machine")
    assert document["differences"][0] == "rows: 6 against 8"


def test_anyway_needs_two_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two arms of one run did the same work, whatever is asked."""
    assert refusal(capsys, str(folder), "--anyway") == (
        "--anyway is for two runs, and only one is given"
    )


def test_a_missing_run_and_a_missing_arm(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is exit code 2, and named."""
    none = str(tmp_path / "none")
    assert refusal(capsys, str(folder), none) == f"no run at {none}"
    told = refusal(capsys, str(folder), "--arms", "reference,fusde")
    assert "has no arm 'fusde'; it has reference, fused" in told
