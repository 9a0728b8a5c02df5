import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from layerscope.analyze.shares import increments, pass_shares
from layerscope.cli.main import main
from layerscope.record.torch_profiler import TorchProfilerRecorder
from layerscope.run import Run, load
from layerscope.runner import anchors, phases, rounds

SMALL = (
    *("profile", "--device", "cpu", "--arms", "reference", "--context", "32"),
    *("--samples", "24", "--passes", "4", "--captures", "1"),
)
AGAIN = "reference (A/A)"


class Profiled(NamedTuple):
    """A run, and what was printed of it when it was made."""

    folder: str
    printed: str

    @property
    def run(self) -> Run:
        """The run as it is on disk."""
        return load(self.folder)


@pytest.fixture(scope="module", autouse=True)
def _as_planned() -> Iterator[None]:
    """Leave no time to rounds that are not planned: what is measured is then fixed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "_ANCHOR_SHARE", 0.0)
        yield


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """A small mixture of experts, measured once for the tests that read it."""
    folder = str(tmp_path_factory.mktemp("profiled") / "run")
    with redirect_stdout(StringIO()) as printed:
        assert main([*SMALL, "--model", "tiny-moe", "-o", folder]) == 0
    return Profiled(folder, printed.getvalue())


def is_exact(run: Run) -> bool:
    """Whether the shares of every arm add up to its increments, to the nanosecond."""
    shares = pass_shares(run.kernels).group_by("arm").agg(pl.col("share_ns").sum())
    whole = increments(run.kernels).group_by("arm").agg(pl.col("increment_ns").sum())
    sums = dict(shares.iter_rows())
    assert set(sums) == {"reference", AGAIN}
    assert all(total > 0 for total in sums.values())
    return sums == dict(whole.iter_rows())


def test_a_small_layer_is_profiled_whole(profiled: Profiled) -> None:
    """Complete, without drops, with as many passes as asked for before and after."""
    run = profiled.run
    assert (run.header.status, run.header.drops) == ("complete", [])
    passes = run.samples.group_by("phase", "arm").agg(pl.col("passes").sum())
    assert set(passes.select("phase", "arm").rows()) == {
        (phase, arm) for phase in ("anchor", "after") for arm in ("reference", AGAIN)
    }
    assert all(count >= 24 for count in passes["passes"])
    used = run.kernels.select("arm", "replay").unique().group_by("arm").len()
    assert dict(used.iter_rows()) == {"reference": 12, AGAIN: 12}


def test_shares_add_up_to_the_increments_exactly(profiled: Profiled) -> None:
    """No nanosecond of a used pass is lost or counted twice."""
    assert is_exact(profiled.run)


def test_every_pass_is_the_same_operators_in_the_same_regions(
    profiled: Profiled,
) -> None:
    """Replays differ in time alone; the head comes before the first pass."""
    kernels = profiled.run.kernels.sort("arm", "replay", "node")
    key = ["arm", "replay", "pass_index"]
    chains = kernels.group_by(key, maintain_order=True).agg("region", "name")
    layers = chains.filter(pl.col("pass_index") >= 0).select("region", "name").unique()
    assert layers.height == 1
    regions = layers["region"].explode().unique(maintain_order=True).to_list()
    assert regions == ["attention", "o_proj_all_reduce", "moe"]
    head = chains.filter(pl.col("pass_index") < 0)
    assert head["region"].explode().unique().to_list() == ["other"]


def test_show_prints_what_profile_printed(
    profiled: Profiled, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is made of what is on disk."""
    assert "regions of reference" in profiled.printed
    assert main(["show", profiled.folder]) == 0
    assert capsys.readouterr().out == profiled.printed


def test_json_has_the_shares_and_the_plan(
    profiled: Profiled, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raw numbers, of which those of the regions add up to the total."""
    assert main(["show", profiled.folder, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"]["study"]["samples"] == 24
    titled = {table["title"]: table for table in document["tables"]}
    table = titled["regions of reference, a profiled pass"]
    *regions, total = table["rows"]
    assert [row["region"] for row in regions] == [
        "attention",
        "o_proj_all_reduce",
        "moe",
    ]
    shares = sum(row["share_mean_ns"] for row in regions)
    assert total["share_mean_ns"] == pytest.approx(shares)


def test_a_dense_checkpoint_is_profiled_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What transformers saves can be measured: config.json and safetensors."""
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    folder = ["--model", str(tmp_path / "model"), "--layer", "1"]
    assert main([*SMALL, *folder, "-o", str(tmp_path / "run"), "--json"]) == 0
    run = load(tmp_path / "run")
    assert json.loads(capsys.readouterr().out)["run"]["status"] == "complete"
    assert is_exact(run)
    assert run.kernels["region"].unique().sort().to_list() == [
        *("attention", "mlp", "o_proj_all_reduce", "other"),
    ]
    assert run.header.distinct_experts == []


def test_ctrl_c_while_measuring_leaves_a_run_that_can_be_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 130; the rounds before it are kept, and the report says so."""
    enqueue = rounds.enqueue

    def interrupted(*arguments: object) -> object:
        if arguments[1] == 9:
            raise KeyboardInterrupt
        return enqueue(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(anchors, "enqueue", interrupted)
    folder = str(tmp_path / "run")
    assert main([*SMALL, "--model", "tiny-moe", "-o", folder]) == 130
    assert "interrupted" in capsys.readouterr().err
    run = load(folder)
    assert (run.header.status, run.header.status_reason) == ("partial", "interrupted")
    assert run.samples["round"].unique().sort().to_list() == list(range(9))
    assert main(["show", folder]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_ctrl_c_while_recording_keeps_the_anchors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run without kernels can be shown: anchors are what it is about."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TorchProfilerRecorder, "record", interrupted)
    folder = str(tmp_path / "run")
    assert main([*SMALL, "--model", "tiny-moe", "-o", folder]) == 130
    run = load(folder)
    assert run.kernels.is_empty()
    assert set(run.samples["phase"]) == {"anchor"}
    capsys.readouterr()
    assert main(["show", folder]) == 0
    assert "reference" in capsys.readouterr().out
