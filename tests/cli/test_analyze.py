import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.cli.main import main
from layerscope.run import load

LAYERS = ("rms_norm", "qkv_gemm", "flash_fwd", "o_proj", "moe_up", "moe_down")

RULES = """
[[rule]]
name = "mine"
pattern = "sampler"
region = "sampling"
role = "sample"
"""


def event(cat: str, name: str, start_us: float, duration_us: float, **args: int) -> Any:  # noqa: ANN401
    """An event of Kineto: on stream 7, or on a thread of the host."""
    place = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 100, "tid": 100}
    times = {"ts": start_us, "dur": duration_us}
    return {"ph": "X", "cat": cat, "name": name, "args": args} | place | times


def launched(name: str, at_us: float, number: int) -> list[Any]:
    """A kernel of 8 µs, and its launch 400 µs earlier."""
    kernel = {"device": 0, "stream": 7, "correlation": number}
    return [
        event("kernel", name, at_us, 8.0, **kernel),
        event("cuda_runtime", "cudaLaunchKernel", at_us - 400, 5.0, correlation=number),
    ]


def write(path: Path, *, rank: int = 0, layers: int = 8, steps: int = 2) -> Path:
    """A trace of decode steps of so many layers of six kernels, 2 µs apart."""
    names = [*(LAYERS * layers), "argmax_sampler"]
    events = []
    for step in range(steps):
        begin = 1_000.0 + 2_000.0 * step
        length = 10.0 * len(names)
        events.append(
            event("user_annotation", "step[DECODE bs=4]", begin - 401, length)
        )
        for place, name in enumerate(names):
            number = step * len(names) + place + 1
            events += launched(name, begin + 10.0 * place, number)
    document = {"schemaVersion": 1, "traceEvents": events}
    document |= {"distributedInfo": {"rank": rank, "world_size": 2}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace of two steps of eight layers."""
    monkeypatch.setenv("LAYERSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return write(tmp_path / "rank0.json")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    assert main(["analyze", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_layers_are_found_and_told(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every line fits a terminal, and trust comes before the verdict and numbers."""
    assert main(["analyze", str(trace)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "rank0.json"
    assert lines[1].startswith("trust: nothing was found")
    assert lines[2].startswith("2 decode steps: waits 68.5 % of the time: gaps between")
    assert any(line.startswith("layers") and "8 a step" in line for line in lines)


def test_json_has_the_tables(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get the same, with times in ns."""
    found = document(capsys, str(trace))
    tables = {each["title"]: each["rows"] for each in found["tables"]}
    (steps,) = tables["steps; gaps before them are apart"]
    assert (steps["layers"], steps["kernels"]) == (8, 49)
    assert steps["share_ns"] == 48 * 10_000 + 8_000


def test_one_layer(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--layer lists the kernels of that layer."""
    found = document(capsys, str(trace), "--layer", "3")
    (table,) = found["tables"]
    assert [row["kernel"].partition(" ")[0] for row in table["rows"]] == list(LAYERS)


def test_rules_of_the_user(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--rules names regions of kernels that layerscope does not know."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    found = document(capsys, str(trace), "--rules", str(rules))
    regions = {row.get("region") for table in found["tables"] for row in table["rows"]}
    assert "sampling" in regions


def test_ranks(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several traces have a row each, and a part on their clocks."""
    other = write(trace.with_name("rank1.json"), rank=1)
    found = document(capsys, str(trace), str(other))
    assert [row["rank"] for row in found["tables"][0]["rows"]] == ["rank 0", "rank 1"]
    assert found["parts"][0]["title"] == "ranks on one clock, observed"


def test_a_layer_of_several_traces(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--layer is for one trace."""
    other = write(trace.with_name("rank1.json"), rank=1)
    assert main(["analyze", str(trace), str(other), "--layer", "0"]) == 2
    assert "--layer is for one trace, and 2 are given" in capsys.readouterr().err


def test_files_that_were_not_read(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder, what is no trace is named with the reason."""
    folder = trace.with_name("traces")
    folder.mkdir()
    write(folder / "rank0.json")
    (folder / "notes.txt").write_text("nothing", encoding="utf-8")
    assert main(["analyze", str(folder)]) == 0
    assert "warning:" in capsys.readouterr().out


def test_saving_a_run(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--save makes a run of the steps, which show can print."""
    assert main(["analyze", str(trace), "--save", str(tmp_path / "run")]) == 0
    assert "saved; see it again" in capsys.readouterr().err
    assert load(tmp_path / "run").kernels.height == 2 * 49
    assert main(["show", str(tmp_path / "run")]) == 0


def test_a_missing_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is exit code 2 and one line."""
    assert main(["analyze", str(tmp_path / "none.json")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error: ") == 1
