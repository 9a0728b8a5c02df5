from pathlib import Path

import polars as pl
import pytest
import torch

from layerscope.analyze.shares import increments, pass_shares
from layerscope.cli.main import main
from layerscope.run import load

SMALL = [
    *("profile", "--arms", "reference"),
    *("--model", "tiny-moe", "--context", "256", "--samples", "48"),
    *("--passes", "6", "--captures", "2", "--time-budget", "1"),
]


@pytest.mark.parametrize("recorder", ["cupti", "torch.profiler"])
@pytest.mark.parametrize("weights", ["bfloat16", "float8_e4m3"])
def test_a_small_layer_is_profiled_whole(
    tmp_path: Path, recorder: str, weights: str
) -> None:
    """All records are mapped, none dropped, and shares add up to the increments."""
    arguments = ["--recorder", recorder, "--weights", weights, "-o", f"{tmp_path}/run"]
    assert main([*SMALL, *arguments]) == 0
    run = load(tmp_path / "run")
    assert run.header.status == "complete"
    assert run.header.drops == []
    assert set(run.samples["phase"].unique()) == {"anchor", "knockout", "after"}
    phases = [each.phase for each in run.header.launch_costs]
    captures = run.samples.filter(phase="anchor")["capture"].n_unique()
    limits = phases[captures + 1 :]
    assert phases[: captures + 1] == ["anchor"] * captures + ["after"]
    assert limits == sorted(limits)
    assert set(limits) == ({"bounds", "reads"} if run.header.bounds else set())
    assert all(0 < each.low_ns <= each.kernel_ns for each in run.header.launch_costs)
    shares = pass_shares(run.kernels)
    total = increments(run.kernels)["increment_ns"].sum()
    assert shares["share_ns"].sum() == total
    assert set(run.kernels.filter(pl.col("pass_index") < 0)["region"]) == {"other"}
    assert run.draft is not None
    kernels = run.draft.kernels.filter(pl.col("pass_index") >= 0)
    assert set(kernels["region"]) == {"draft"}
    assert set(kernels["role"]) == {f"token_{number}" for number in range(1, 6)}


def test_no_free_memory_is_one_line_before_anything_is_allocated(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A problem that cannot fit is refused with what it needs and what is free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1_000_000, 10**9))
    assert main([*SMALL, "-o", f"{tmp_path}/run"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "need" in line
    assert "are free; use fewer --passes" in line


def test_memory_that_runs_out_later_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An allocation that fails inside a build names what is free, without traceback."""
    fraction = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.0005)
    try:
        assert main([*SMALL, "-o", f"{tmp_path}/run"]) == 1
    finally:
        torch.cuda.set_per_process_memory_fraction(fraction)
    assert "out of GPU memory" in capsys.readouterr().err
