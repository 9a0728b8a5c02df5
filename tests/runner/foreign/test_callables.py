import subprocess
import sys
from math import nan
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import layerscope
from layerscope import CallableOptions, InputError, LayerscopeError, MeasurementError
from layerscope.graphs import device as devices
from layerscope.run import RunWriter
from layerscope.runner.foreign import callables
from layerscope.study import Arm, CallableSpec, Study

ROOT = Path(__file__).resolve().parent.parent.parent.parent
X = (torch.ones(3),)


class Stop(Exception):  # noqa: N818 (it ends a test's run, and is no error)
    """Raised where a test has seen enough."""


def refusal(kind: type[LayerscopeError], inputs: object = X, **options: object) -> str:
    """The message with which a study of one function is refused."""
    with pytest.raises(kind) as caught:
        layerscope.profile(
            {"base": torch.sin},
            inputs,  # type: ignore[arg-type]
            options=CallableOptions(**options),  # type: ignore[arg-type]
        )
    return str(caught.value)


def planned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: object,
    options: dict[str, object],
) -> Study:
    """The study of two functions as it is when measuring begins."""
    seen: list[Study] = []

    def stop(_: object, writer: RunWriter, *__: object) -> None:
        seen.append(writer.header.study)
        raise Stop

    monkeypatch.setattr(callables, "open_bench", stop)
    with pytest.raises(Stop):
        layerscope.profile(
            {"base": torch.sin, "fused": torch.sin},
            inputs,  # type: ignore[arg-type]
            options=CallableOptions(
                output=tmp_path / "run",
                **options,  # type: ignore[arg-type]
            ),
        )
    return seen[0]


def test_defaults_follow_from_the_device_and_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One length on a CPU, a tolerance by type, one step for constant inputs."""
    assert planned(tmp_path, monkeypatch, X, {}) == Study(
        spec=CallableSpec(inputs=("float32 [3]",), tolerance=1e-4),
        arms=(Arm(backend="base"), Arm(backend="fused")),
        lengths=(8,),
        steps=1,
    )


def test_every_option_reaches_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user says replaces each default."""
    options: dict[str, object] = {
        "tolerance": 0.5,
        "samples": 10,
        "passes": 4,
        "captures": 3,
        "seed": 7,
        "time_budget_s": 2.0,
        "device": "cpu",
    }
    inputs = {"input": torch.zeros(3)}
    assert planned(tmp_path, monkeypatch, lambda _: inputs, options) == Study(
        spec=CallableSpec(inputs=("input float32 [3]",), tolerance=0.5),
        arms=(Arm(backend="base"), Arm(backend="fused")),
        seed=7,
        samples=10,
        lengths=(4,),
        captures=3,
        steps=1,
        time_budget_s=2.0,
    )


def test_a_study_that_ends_before_it_measures_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no samples tells nothing."""
    planned(tmp_path, monkeypatch, X, {})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("package", ["torch", "safetensors"])
def test_without_the_extra_it_is_named(package: str) -> None:
    """A plain install can import layerscope, and says what measuring needs."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from layerscope import LayerscopeError, region\n"
        "with region('moe'):\n    pass\n"
        "try:\n    from layerscope import profile\n"
        "except LayerscopeError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        f"profile needs {package}; pip install 'layerscope[profile]'\n"
    )


def test_all_options_out_of_range_are_told_at_once() -> None:
    """Each with what it must be."""
    assert refusal(
        InputError,
        samples=0,
        captures=0,
        passes=2,
        time_budget_s=0.0,
        tolerance=nan,
    ) == (
        "samples is 0, and must be at least 1; captures is 0, and must be at least 1; "
        "passes is 2, and must be at least 3; time_budget_s is 0, and must be a number "
        "of seconds above 0; tolerance is nan, and must be 0 or above"
    )


def test_a_folder_in_use_is_refused_before_any_call(tmp_path: Path) -> None:
    """Nothing is overwritten, and no one waits for a refusal."""
    (tmp_path / "kept").touch()

    def never(_: Tensor) -> Tensor:
        raise AssertionError

    with pytest.raises(InputError) as caught:
        layerscope.profile({"base": never}, X, options=CallableOptions(output=tmp_path))
    assert str(caught.value) == (
        f"{tmp_path} already holds files; choose another --output"
    )


def test_inputs_elsewhere_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the inputs are is what is measured."""
    assert refusal(InputError, [torch.zeros(1, device="meta")]) == (
        "inputs are on meta; move them to cpu or cuda"
    )
    monkeypatch.setattr(devices, "resolve", lambda _: torch.device("cuda", 0))
    assert refusal(InputError, device="cuda") == (
        "device is cuda, but the inputs are on cpu; move them"
    )


def test_unknown_devices_and_recorders_are_refused(tmp_path: Path) -> None:
    """As everywhere else."""
    assert "unknown device 'tpu'" in refusal(InputError, device="tpu")
    options = {"recorder": "ear", "output": tmp_path / "run"}
    assert "unknown recorder 'ear'" in refusal(InputError, **options)


def test_a_device_that_others_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every reason, before the arms are called."""
    monkeypatch.setattr(devices, "refusals", lambda _: ["MIG is enabled", "too hot"])
    assert refusal(MeasurementError) == "MIG is enabled; too hot"


def test_without_inputs_the_weights_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions without either are measured on the device asked for."""
    seen: list[torch.device] = []

    def note(device: torch.device) -> list[str]:
        seen.append(device)
        raise Stop

    monkeypatch.setattr(devices, "resolve", lambda _: torch.device("cuda", 0))
    monkeypatch.setattr(devices, "refusals", note)
    for arm in (nn.Linear(2, 2), torch.rand):
        with pytest.raises(Stop):
            layerscope.profile({"base": arm})
    assert seen == [torch.device("cpu"), torch.device("cuda", 0)]
