import json
from pathlib import Path

import msgspec
import pytest

from layerscope.cli.main import main
from layerscope.study import Arm
from tests import handmade
from tests.ingest import paper_runs


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


TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
EAGER, GRAPH = (str(TRACES / f"made-{kind}.json.gz") for kind in ("eager", "graph"))


def test_two_traces_of_another_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """The observed ledger, arm by arm; what planted traces differ by is its lines."""
    assert main(["compare", EAGER, GRAPH, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["title"] == "made-graph against made-eager, observed"
    titled = {table["title"]: table["rows"] for table in document["tables"]}
    rows = titled[
        "ledger of decode of made-graph, observed, against decode of made-eager"
    ]
    causes = {row["cause"]: row["change_ns"] for row in rows}
    assert list(causes) == ["shorter gaps", "faster kernels", "change"]
    # experts take 31.0 and 19.0 µs in one, 24.5 and 15.5 µs in the other
    assert causes["faster kernels"] == pytest.approx(-10_000, rel=0.01)
    assert causes["change"] == pytest.approx(
        causes["shorter gaps"] + causes["faster kernels"]
    )


def test_a_saved_trace_is_as_the_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run and a trace can be compared, and the same one differs in nothing."""
    folder = tmp_path / "run"
    assert main(["analyze", EAGER, "--save", str(folder)]) == 0
    capsys.readouterr()
    assert main(["compare", str(folder), EAGER, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [text.split(", ")[1] for text in document["headlines"].values()] == [
        "0 ns (0.00 %)",
        "0 ns (0.00 %)",
    ]


def test_arms_of_a_saved_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two that it has need no names."""
    folder = paper_runs.write(tmp_path / "run")
    assert main(["compare", str(folder)]) == 0
    title, headline, *_ = capsys.readouterr().out.splitlines()
    assert title == "trace paper.json.gz: prefill against decode, observed"
    assert headline.startswith("prefill against decode, observed: a layer 349.0 µs")


def test_what_is_neither_run_nor_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path that is not there, a folder of runs, and a file of something else."""
    run = paper_runs.write(tmp_path / "runs" / "one")
    assert refusal(capsys, str(tmp_path / "none"), EAGER).startswith("no run at")
    told = refusal(capsys, str(run.parent), EAGER)
    assert told.endswith(f"holds no run.json; did you mean {run}?")
    other = tmp_path / "notes.txt"
    other.write_text("no trace", encoding="utf-8")
    assert main(["compare", str(other), EAGER]) == 2


def test_rules_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They come before those known here, for both traces."""
    rules = tmp_path / "rules.toml"
    rules.write_text(
        "[[rule]]\nname = 'mine'\npattern = 'fused_moe_kernel|GroupProblemShape'\n"
        "role = 'mine'\nregion = 'moe'\n",
        encoding="utf-8",
    )
    assert main(["compare", EAGER, GRAPH, "--rules", str(rules), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    roles = {
        row["role"]
        for table in document["tables"]
        for row in table["rows"]
        if "role" in row
    }
    assert "mine" in roles
    assert "experts" not in roles
