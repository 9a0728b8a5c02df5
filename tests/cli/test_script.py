import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from layerscope import CallableOptions, MeasurementError
from layerscope.cli import script as module
from layerscope.cli.main import main
from layerscope.graphs import device as devices
from layerscope.run import Run, load
from tests import handmade

LAYER = """
    import torch

    def base(x):
        return torch.sin(x)

    def fused(x):
        return torch.sin(x)

    arms = {"base": base, "fused": fused}

    def inputs(step):
        return (torch.full((4,), float(step)),)

    regions = {"moe": "mlp"}
    tolerance = 0.25
"""


class FakeProfile:
    """Writes the hand-made run instead of measuring, and keeps what it was given."""

    def __init__(self) -> None:
        self.arms: Mapping[str, object] = {}
        self.inputs: object = None
        self.regions: object = None
        self.options = CallableOptions()
        self.path: list[str] = []
        self.error: BaseException | None = None

    def __call__(
        self,
        arms: Mapping[str, object],
        inputs: object,
        regions: object,
        options: CallableOptions,
    ) -> Run:
        """What `layerscope.profile` promises."""
        self.arms, self.inputs, self.regions = arms, inputs, regions
        self.options, self.path = options, list(sys.path)
        if self.error is not None:
            raise self.error
        options.progress.phase("comparing arms", 1)
        assert options.output is not None
        return load(handmade.write(Path(options.output)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> FakeProfile:
    """A profile that measures nothing."""
    fake = FakeProfile()
    monkeypatch.setattr(module, "profile", fake)
    return fake


def write(folder: Path, text: str = LAYER, name: str = "my_layer.py") -> str:
    """A script in `folder`."""
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return str(path)


def run(tmp_path: Path, script: str, *arguments: str) -> int:
    """The exit code of a profile of `script`."""
    output = ["-o", str(tmp_path / "run")]
    return main(["profile", "--script", script, *output, *arguments])


def refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, *arguments: str
) -> str:
    """The one line with which a script is refused; no folder is left."""
    assert run(tmp_path, script, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
    return err.removeprefix("error: ").removesuffix("\n")


def test_a_script_says_what_is_measured(
    tmp_path: Path, measured: FakeProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arms, inputs, regions and tolerance; the report is that of any run."""
    script = write(tmp_path)
    assert run(tmp_path, script) == 0
    assert list(measured.arms) == ["base", "fused"]
    assert callable(measured.inputs)
    assert measured.regions == {"moe": "mlp"}
    assert measured.options.tolerance == 0.25
    out, err = capsys.readouterr()
    assert out.startswith("paper-moe, layer 0\n")
    assert err == (
        f"base, fused of {script}\n"
        f"saved; see it again: layerscope show {tmp_path / 'run'}\n"
    )


def test_a_script_says_which_regions_may_be_left_out(
    tmp_path: Path, measured: FakeProfile
) -> None:
    """Experiments are made unless the command line says otherwise."""
    script = write(tmp_path, LAYER + "    skippable = ['moe']\n")
    assert run(tmp_path, script) == 0
    assert measured.options.skippable == ("moe",)
    assert measured.options.experiments
    assert main(["profile", "--script", script, "--no-experiments"]) == 0
    assert not measured.options.experiments


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ((), ["base", "fused"]),
        (("--arms", "other,fused"), ["other", "fused"]),  # base may not even run here
    ],
)
def test_another_process_can_make_the_arms_of_a_script_again(
    tmp_path: Path,
    measured: FakeProfile,
    monkeypatch: pytest.MonkeyPatch,
    typed: tuple[str, ...],
    again: list[str],
) -> None:
    """Those that are asked for, and the first, which all are compared with."""
    arms = "arms = {'base': torch.sin, 'fused': torch.sin, 'other': lambda x: x.sin()}"
    more = "regions = None; skippable = ('moe',)"
    script = write(tmp_path, f"{dedent(LAYER)}\n{arms}\n{more}")
    assert run(tmp_path, script, *typed) == 0
    recipe = measured.options.recipe
    assert recipe is not None
    module_name, _, name = recipe.factory.partition(":")
    factory = getattr(sys.modules[module_name], name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    made = factory(**recipe.arguments, arms=["fused"], passes=2, device="cpu")
    assert list(made.arms) == again
    assert made.allowed("fused").skippable == ("moe",)
    made.run_pass("fused", 0, 1)
    (output,) = made.outputs("fused", 1)
    assert torch.equal(output, torch.sin(torch.zeros(4)))
    assert sys.modules.pop(module.MODULE_NAME).arms is not None


def test_all_but_the_arms_may_be_left_out(
    tmp_path: Path, measured: FakeProfile
) -> None:
    """What is not defined is what `layerscope.profile` takes by default."""
    assert run(tmp_path, write(tmp_path, "arms = {'base': print}")) == 0
    assert measured.arms == {"base": print}
    assert measured.inputs == ()
    assert measured.regions is None
    assert measured.options.tolerance is None


def test_options_that_are_not_about_a_layer_apply(
    tmp_path: Path, measured: FakeProfile
) -> None:
    """Each reaches the measurement, and the command line is kept."""
    typed = [
        *("--samples", "10", "--captures", "3", "--passes", "5", "--seed", "7"),
        *("--time-budget", "2", "--recorder", "none", "--device", "cpu", "--json"),
    ]
    script = write(tmp_path)
    assert run(tmp_path, script, *typed) == 0
    options = measured.options
    assert (options.samples, options.captures, options.passes) == (10, 3, 5)
    assert (options.seed, options.time_budget_s) == (7, 2.0)
    assert (options.recorder, options.device) == ("none", "cpu")
    assert options.output == tmp_path / "run"
    assert options.command[:4] == ["layerscope", "profile", "--script", script]


def test_a_run_without_a_name_is_called_after_the_script(
    tmp_path: Path, measured: FakeProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below ``layerscope-runs``, as for a layer."""
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "--script", write(tmp_path)]) == 0
    output = Path(str(measured.options.output))
    assert output.parent == Path("layerscope-runs")
    assert output.name.endswith("-my_layer")


def test_arms_are_picked_and_ordered(tmp_path: Path, measured: FakeProfile) -> None:
    """The first one named is what others are compared with."""
    assert run(tmp_path, write(tmp_path), "--arms", "fused, base") == 0
    assert list(measured.arms) == ["fused", "base"]


def test_a_script_runs_as_a_program_would_but_for_its_name(
    tmp_path: Path, measured: FakeProfile
) -> None:
    """Its folder comes first, also while it is measured; nothing of it stays."""
    write(tmp_path, "arms = {'neighbour': print}", "neighbour_of_my_layer.py")
    text = """
        import sys
        from neighbour_of_my_layer import arms
        assert sys.modules[__name__].arms is arms
        assert sys.argv == [__file__]
        if __name__ == "__main__":
            raise AssertionError("guarded")
        arms = {**arms, __name__: print}
    """
    before = list(sys.path), list(sys.argv)
    assert run(tmp_path, write(tmp_path, text)) == 0
    sys.modules.pop("neighbour_of_my_layer")
    assert list(measured.arms) == ["neighbour", "layerscope_script"]
    assert measured.path[0] == str(tmp_path.resolve())
    assert (list(sys.path), list(sys.argv)) == before
    assert "layerscope_script" not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "tiny-moe"], "--model"),
        (["--tp", "4", "--shard-shaped"], "--tp, --shard-shaped"),
        (["--weights", "bfloat16", "--no-draft"], "--weights, --no-draft"),
        (["--draft-tokens", "3", "--page-size", "8"], "--draft-tokens, --page-size"),
    ],
)
def test_options_about_a_layer_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    """All of them are named, before the script is run."""
    script = write(tmp_path, "raise AssertionError")
    assert refusal(tmp_path, capsys, script, *arguments) == (
        f"{named} describe a layer, and --script brings its own code"
    )


def test_scripts_that_cannot_be_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the file and the cause."""
    missing = str(tmp_path / "nowhere.py")
    assert refusal(tmp_path, capsys, missing) == (
        f"--script {missing}: No such file or directory"
    )
    assert refusal(tmp_path, capsys, str(tmp_path)) == (
        f"--script {tmp_path}: Is a directory"
    )
    text = write(tmp_path, "hello", "notes.txt")
    assert refusal(tmp_path, capsys, text) == (
        f"--script {text} is no Python file: its name must end in .py"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '{} defines no arms; write arms = {{"base": ..., "fused": ...}}'),
        (
            "arms = {}",
            "arms is empty; give callables by name, the first to compare with",
        ),
        (
            "arms = [print]",
            "arms is of type list; give callables by name, the first to compare with",
        ),
        (
            "arms = {'a': 3}",
            "arm a is of type int; give a callable, or a sequence of callables",
        ),
        (
            "arms = {'a': print}; tolerance = '1'",
            "{}: tolerance is '1', and must be a number",
        ),
        (
            "arms = {'a': print}; skippable = 'moe'",
            "{}: skippable is 'moe', and must be a list of regions' names",
        ),
        (
            "arms = {'a': print}; skippable = ['moe', 1]",
            "{}: skippable is ['moe', 1], and must be a list of regions' names",
        ),
        (
            "arms = {'a': print}; regions = 3",
            "regions is of type int; give patterns of module names by region",
        ),
        (
            "arms = {'a': print}; inputs = 3",
            (
                "inputs is of type int; give a sequence of arguments, a mapping of "
                "keyword arguments, or a function of a step that makes either"
            ),
        ),
        (
            "import sys; sys.exit(3)",
            "{} ended itself with exit code 3; it must run to its end",
        ),
    ],
)
def test_scripts_that_define_something_else_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """One line each, and exit code 2."""
    script = write(tmp_path, text)
    assert refusal(tmp_path, capsys, script) == message.format(script)


def test_arms_that_a_script_lacks_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those it has are named."""
    script = write(tmp_path)
    assert refusal(tmp_path, capsys, script, "--arms", "base,fusde") == (
        f"--arms: {script} has no arm 'fusde'; it has base, fused"
    )
    assert refusal(tmp_path, capsys, script, "--arms", "base,base") == (
        "--arms names base twice; the A/A capture is made without asking"
    )


def test_a_device_that_the_inputs_are_not_on_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is measured is where the inputs are."""
    monkeypatch.setattr(devices, "resolve", lambda _: torch.device("cuda", 0))
    text = "import torch; arms = {'a': torch.sin}; inputs = [torch.ones(2)]"
    assert refusal(tmp_path, capsys, write(tmp_path, text), "--device", "cuda") == (
        "device is cuda, but the inputs are on cpu; move them"
    )


@pytest.mark.parametrize("text", ["1 / 0", "arms = {'a': print}\n(", "import nowhere"])
def test_an_error_in_a_script_keeps_its_traceback(tmp_path: Path, text: str) -> None:
    """It is the user's own, and shows their lines."""
    script = write(tmp_path, text)
    with pytest.raises((ZeroDivisionError, SyntaxError, ModuleNotFoundError)) as caught:
        run(tmp_path, script)
    error = caught.value
    shown = error.filename if isinstance(error, SyntaxError) else None
    files = {str(entry.path) for entry in caught.traceback}
    assert script in files | {str(shown)}


def test_an_error_of_layerscope_is_one_line(
    tmp_path: Path, measured: FakeProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of its kind."""
    measured.error = MeasurementError("MIG is enabled")
    assert run(tmp_path, write(tmp_path)) == 1
    assert capsys.readouterr() == ("", "error: MIG is enabled\n")


def test_an_interrupt_says_what_was_kept(
    tmp_path: Path, measured: FakeProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is exit code 130 and one line, whether something was kept or not."""
    measured.error = KeyboardInterrupt()
    script = write(tmp_path)
    assert run(tmp_path, script) == 130
    assert capsys.readouterr() == ("", "interrupted; nothing was recorded\n")
    folder = handmade.write(tmp_path / "run")
    assert run(tmp_path, script) == 130
    assert capsys.readouterr().err == (
        f"interrupted; see what was kept: layerscope show {folder}\n"
    )
