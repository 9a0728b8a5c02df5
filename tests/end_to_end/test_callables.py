import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
import torch
from torch import Tensor, nn

import layerscope
from layerscope import BackendError, CallableOptions, Run, load, region, role
from layerscope.analyze.shares import increments, pass_shares
from layerscope.cli.main import main
from layerscope.runner import phases

SMALL = ("--samples", "8", "--captures", "3", "--passes", "4", "--time-budget", "2")
AGAIN = "base (A/A)"
ROOT = Path(__file__).resolve().parent.parent.parent
RULED = re.DOTALL | re.MULTILINE

SCRIPT = """
import torch
from layerscope import region, role

weight = torch.eye(16)

def base(x, cache):
    with region("gather"):
        cache[:4] = x
    return cache @ weight

def fused(x, cache):
    with region("gather"), role("write"):
        cache[:4] = x
    with region("moe"):
        return cache @ weight

arms = {"base": base, "fused": fused, "wrong": lambda x, cache: cache @ weight}

def inputs(step):
    made = torch.Generator().manual_seed(step)
    return torch.randn(4, 16, generator=made), torch.zeros(8, 16)
"""


class Block(nn.Module):
    """A small decoder layer that takes what such layers take."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))

    def forward(
        self, hidden: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None = None
    ) -> tuple[Tensor]:
        """Both parts, each added to what it reads."""
        assert mask is None
        cos, sin = rope
        attended = hidden + self.self_attn(hidden * cos) * sin
        return (attended + self.mlp(attended),)


class Measured(NamedTuple):
    """A run, and the modules of its first arm."""

    run: Run
    blocks: list[Block]


def options(output: Path) -> CallableOptions:
    """As little as can be measured."""
    return CallableOptions(
        output=output, samples=8, captures=3, passes=4, time_budget_s=2.0
    )


@pytest.fixture(scope="module", autouse=True)
def _as_planned() -> Iterator[None]:
    """Leave no time to rounds that are not planned: what is measured is then fixed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "_ANCHOR_SHARE", 0.0)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Two modules that take turns, and a function that does the same."""
    blocks = [Block(), Block()]
    blocks[1].load_state_dict(blocks[0].state_dict())
    block = blocks[0]

    def fused(hidden: Tensor, rope: tuple[Tensor, Tensor], mask: None) -> Tensor:
        del mask
        with region("attention"):
            with role("project"):
                projected = block.self_attn(hidden * rope[0])
            attended: Tensor = hidden + projected * rope[1]
        with region("mlp"):
            return torch.as_tensor(attended + block.mlp(attended))

    hidden, rope = torch.randn(3, 16), (torch.randn(16), torch.randn(16))
    run = layerscope.profile(
        {"base": blocks, "fused": fused},
        lambda step: {"hidden": hidden + step, "rope": rope, "mask": None},
        {"attention": "self_attn", "mlp": "mlp"},
        options(tmp_path_factory.mktemp("callables") / "run"),
    )
    return Measured(run, blocks)


def places(run: Run, arm: str) -> set[tuple[str, str | None]]:
    """Regions and roles of the kernels of an arm."""
    kernels = run.kernels.filter(pl.col("arm") == arm)
    return set(kernels.select("region", "role").rows())


def test_callables_are_measured_whole(measured: Measured) -> None:
    """Complete, without drops, and what is returned is what is on disk."""
    run = measured.run
    assert (run.header.status, run.header.drops) == ("complete", [])
    assert list(run.header.seconds) == ["first calls", "study"]
    assert set(run.samples["arm"]) == {"base", "fused", AGAIN}
    assert [check.error for check in run.header.numerics] == pytest.approx([0.0] * 3)
    again = load(run.path)
    assert again.header == run.header
    assert again.kernels.equals(run.kernels)


def test_regions_come_from_names_of_modules_and_from_markers(
    measured: Measured,
) -> None:
    """Each arm in its own way; what is in neither is other."""
    by_names = {("attention", None), ("mlp", None), ("other", None)}
    assert places(measured.run, "base") == places(measured.run, AGAIN) == by_names
    assert places(measured.run, "fused") == {
        *(("attention", None), ("attention", "project"), ("mlp", None)),
        ("other", None),
    }
    assert not any(block.mlp._forward_hooks for block in measured.blocks)


def test_shares_add_up_to_the_increments_exactly(measured: Measured) -> None:
    """No nanosecond of a used pass is lost or counted twice."""
    shares = pass_shares(measured.run.kernels)
    whole = increments(measured.run.kernels)
    sums, wholes = (
        dict(frame.group_by("arm").agg(pl.col(column).sum()).iter_rows())
        for frame, column in ((shares, "share_ns"), (whole, "increment_ns"))
    )
    assert set(sums) == {"base", "fused", AGAIN}
    assert sums == wholes


def test_a_run_of_callables_is_shown_like_any_other(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what every call gets, and where regions come from."""
    assert main(["show", str(measured.run.path)]) == 0
    shown = capsys.readouterr().out
    for line in (
        "hidden float32 [3, 16], rope[0] float32 [16], rope[1] float32 [16], mask None",
        "32 different ones, changed with the input step",
        "attention = self_attn; mlp = mlp",
    ):
        assert line in " ".join(shown.split())


def test_a_script_is_measured_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With regions and roles of its own, and arguments that it changes in place."""
    script, folder = tmp_path / "my_layer.py", str(tmp_path / "run")
    script.write_text(SCRIPT, encoding="utf-8")
    chosen = ["--script", str(script), "--arms", "base,fused", "--json"]
    assert main(["profile", *chosen, *SMALL, "-o", folder]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["run"]["study"]["spec"]["type"] == "callables"
    assert err.splitlines()[-1] == f"saved; see it again: layerscope show {folder}"
    run = load(folder)
    assert run.header.command[:3] == ["layerscope", "profile", "--script"]
    assert places(run, "base") == {("gather", None), ("other", None)}
    assert places(run, "fused") == {("gather", "write"), ("moe", None), ("other", None)}


def test_a_wrong_arm_is_one_line_and_leaves_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before anything is timed."""
    script, folder = tmp_path / "my_layer.py", tmp_path / "run"
    script.write_text(SCRIPT, encoding="utf-8")
    assert main(["profile", "--script", str(script), "-o", str(folder)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: wrong is wrong: relative error ")
    assert error.endswith(", where 0.0001 is tolerated; it was not timed")
    assert not folder.exists()


def test_an_arm_that_turns_wrong_while_it_is_measured_is_caught(tmp_path: Path) -> None:
    """Every fresh capture is checked again, before it is timed."""
    calls = [0]

    def turns(x: Tensor) -> Tensor:
        calls[0] += 1
        return x.sin() if calls[0] < 20 else x.cos()

    with pytest.raises(BackendError, match="turns is wrong"):
        layerscope.profile(
            {"base": torch.sin, "turns": turns},
            lambda step: [torch.arange(3.0) + step],
            options=options(tmp_path / "run"),
        )


def test_the_documented_example_prints_what_is_documented(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The script of docs/your-own-code.md runs, and its tables have the rows shown."""
    text = (ROOT / "docs" / "your-own-code.md").read_text(encoding="utf-8")
    code, shown = (
        re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
        for kind in ("python", "text")
    )
    script = tmp_path / "my_layer.py"
    script.write_text(code[0], encoding="utf-8")
    folder = ["-o", str(tmp_path / "run")]
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["profile", "--script", str(script), *SMALL, *folder]) == 0
    printed = rows(capsys.readouterr().out)
    documented = rows(shown[0])
    assert list(documented) == ["call: one pass", "regions of base"]
    assert {title: printed[title] for title in documented} == documented


def rows(text: str) -> dict[str, list[str]]:
    """First words of the rows of every table, by the beginning of its title."""
    found = {}
    for table in re.findall(r"^(?:call:|regions of).*?\n\n", f"{text}\n", flags=RULED):
        title, *lines = table.strip().splitlines()
        body = lines[[line.startswith("──") for line in lines].index(True) + 1 :]
        found[title.split(",")[0]] = [line.split("  ")[0] for line in body]
    return found
