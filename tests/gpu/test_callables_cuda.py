from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import Tensor, nn

import layerscope
from layerscope import BackendError, CallableOptions, MeasurementError, Run
from layerscope.analyze.shares import increments, pass_shares
from layerscope.cli.main import main
from layerscope.runner.foreign.arms import Functions

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

WIDTH = 256
AGAIN = "base (A/A)"


@triton.jit  # type: ignore[untyped-decorator]
def strided_silu(x, out, width, strides, BLOCK: tl.constexpr):  # type: ignore[name-defined, no-untyped-def] # noqa: ANN001, ANN201, N803
    """``out = silu(x)`` for a matrix of any strides; one program a row."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    values = tl.load(x + row * strides[0] + columns * strides[1], mask=mask)
    wide = values.to(tl.float32)
    tl.store(out + row * width + columns, wide * tl.sigmoid(wide), mask=mask)


def silu_into(x: Tensor, out: Tensor) -> None:
    """A kernel's wrapper as they are written: it returns nothing."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    strided_silu[rows,](x, out, width, x.stride(), BLOCK=block)


class Block(nn.Module):
    """A small decoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """Both parts, each added to what it reads."""
        x = x + self.attn(x if scale is None else x * scale)
        return torch.as_tensor(x + self.mlp(x))


def block() -> Block:
    """One on the GPU."""
    return Block().to("cuda", torch.bfloat16)


def inputs(step: int) -> list[Tensor]:
    """Six rows, others at every step."""
    draw = torch.Generator("cuda").manual_seed(step)
    return [
        torch.randn(6, WIDTH, generator=draw, device="cuda", dtype=torch.bfloat16),
    ]


def options(output: Path, recorder: str = "auto") -> CallableOptions:
    """As little as can be measured."""
    return CallableOptions(
        output=output,
        samples=48,
        passes=6,
        captures=3,
        time_budget_s=2.0,
        recorder=recorder,
    )


def places(run: Run, arm: str) -> set[tuple[str, str | None]]:
    """Regions and roles of the kernels of an arm's passes."""
    kernels = run.kernels.filter((pl.col("arm") == arm) & (pl.col("pass_index") >= 0))
    return set(kernels.select("region", "role").rows())


def check(run: Run) -> None:
    """All records are mapped, none dropped, and shares add up to the increments."""
    assert (run.header.status, run.header.drops) == ("complete", [])
    total = increments(run.kernels)["increment_ns"].sum()
    assert pass_shares(run.kernels)["share_ns"].sum() == total


@pytest.mark.parametrize("recorder", ["cupti", "torch.profiler"])
def test_a_module_against_a_function(tmp_path: Path, recorder: str) -> None:
    """Regions by names of modules and by markers, under graphs."""
    base = block()

    def fused(x: Tensor) -> Tensor:
        with layerscope.region("attention"):
            with layerscope.role("project"):
                projected = base.attn(x)
            x = x + projected
        with layerscope.region("mlp"):
            hidden = base.mlp[0](x)
            out = torch.empty_like(hidden)
            silu_into(hidden, out)
        return x + out

    patterns = {"attention": "attn", "mlp": "mlp"}
    arms: dict[str, Functions] = {"base": base, "fused": fused}
    run = layerscope.profile(
        arms, inputs, patterns, options(tmp_path / "run", recorder)
    )
    check(run)
    by_names = {("attention", None), ("mlp", None), ("other", None)}
    assert places(run, "base") == places(run, AGAIN) == by_names
    assert places(run, "fused") == {*by_names, ("attention", "project")}
    names = run.kernels.filter(pl.col("name").str.contains("strided_silu"))
    assert set(names.select("arm", "region").rows()) == {("fused", "mlp")}


def test_kernels_that_write_an_argument(tmp_path: Path) -> None:
    """They return nothing; strides of what they read reach them."""

    def base(x: Tensor, out: Tensor) -> None:
        torch.mul(x, torch.sigmoid(x.float()), out=out)

    strides: set[tuple[int, ...]] = set()

    def kernel(x: Tensor, out: Tensor) -> None:
        strides.add(x.stride())
        silu_into(x, out)

    def transposed(step: int) -> list[Tensor]:
        x = inputs(step)[0].float()
        return [x.t(), torch.full((WIDTH, 6), torch.nan, device="cuda")]

    arms = {"base": base, "kernel": kernel}
    run = layerscope.profile(arms, transposed, options=options(tmp_path / "run"))
    check(run)
    assert strides == {(1, WIDTH)}


def test_modules_that_take_turns_and_a_cache_in_place(tmp_path: Path) -> None:
    """Keyword arguments, None, integers, and a cache that every pass changes."""
    layers = [block() for _ in range(3)]

    def step(layer: Block) -> Callable[..., tuple[Tensor, Tensor]]:
        def call(
            x: Tensor, cache: Tensor, slots: Tensor, scale: Tensor | None
        ) -> tuple[Tensor, Tensor]:
            hidden = layer(x, scale)
            cache[slots] = hidden + cache[slots] * 0.5
            return hidden, hidden.argmax(-1)

        return call

    cache = torch.zeros(64, WIDTH, device="cuda", dtype=torch.bfloat16)
    slots = torch.arange(6, device="cuda")
    run = layerscope.profile(
        {"base": [step(layer) for layer in layers], "same": [*map(step, layers)]},
        lambda k: {
            "x": inputs(k)[0],
            "cache": cache,
            "slots": slots + k,
            "scale": None,
        },
        options=options(tmp_path / "run"),
    )
    check(run)
    assert cache.count_nonzero() == 0
    assert [each.error for each in run.header.numerics] == pytest.approx([0.0] * 3)


@pytest.mark.parametrize("own", [False, True], ids=["fresh", "own memory"])
def test_an_arm_that_writes_nothing_under_capture_is_caught(
    tmp_path: Path, *, own: bool
) -> None:
    """Its replays would show what was written before; that is spoilt."""
    base, x = block(), inputs(0)
    kept = torch.empty_like(x[0])

    def stops(x: Tensor) -> Tensor:
        out = kept if own else torch.empty_like(x)
        if not torch.cuda.is_current_stream_capturing():
            out.copy_(base(x))
        return out

    with pytest.raises(BackendError) as caught:
        layerscope.profile(
            {"base": base, "stops": stops}, x, options=options(tmp_path / "run")
        )
    assert str(caught.value).startswith("stops is wrong: ")
    assert not (tmp_path / "run").exists()


def test_an_arm_that_waits_for_the_device_is_one_line(tmp_path: Path) -> None:
    """It cannot be captured; it is named, and the device can be used again."""
    base = block()

    def waits(x: Tensor) -> Tensor:
        return base(x) if float(x.abs().max()) >= 0 else x

    with pytest.raises(MeasurementError) as caught:
        layerscope.profile(
            {"base": base, "waits": waits}, inputs, options=options(tmp_path / "run")
        )
    message = str(caught.value)
    assert message.startswith("waits: it cannot be captured into a CUDA graph: ")
    assert "\n" not in message
    check(layerscope.profile({"base": base}, inputs, options=options(tmp_path / "run")))


@pytest.mark.filterwarnings("ignore")  # torch warns of itself when it compiles
def test_a_compiled_module_is_an_arm(tmp_path: Path) -> None:
    """Markers in it break no graph; what it runs is of no region of its own."""

    class Marked(Block):
        def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
            with layerscope.region("attention"):
                return super().forward(x, scale)

    base = Marked().to("cuda", torch.bfloat16)
    arms: dict[str, Functions] = {
        "base": base,
        "compiled": torch.compile(base, fullgraph=True),
    }
    run = layerscope.profile(arms, inputs, options=options(tmp_path / "run"))
    check(run)
    assert places(run, "base") == {("attention", None)}
    assert places(run, "compiled") == {("other", None)}


def test_a_script_is_measured_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the device that its inputs are on; another one is refused."""
    script, folder = tmp_path / "my_layer.py", str(tmp_path / "run")
    script.write_text(
        "import torch\n"
        "arms = {'base': torch.sin, 'same': torch.sin}\n"
        "inputs = [torch.ones(64, device='cuda')]\n",
        encoding="utf-8",
    )
    typed = ["profile", "--script", str(script), "--samples", "24", "-o", folder]
    assert main([*typed, "--device", "cpu"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: device is cpu, but the inputs are on cuda:0; move them"
    )
    assert main([*typed, "--captures", "3", "--time-budget", "1"]) == 0
    assert "calls" in capsys.readouterr().out
