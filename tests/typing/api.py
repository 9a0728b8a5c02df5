"""Uses every public name as a user would; only type-checked, never run."""

from pathlib import Path
from typing import assert_type

import polars as pl
import torch
from torch import Tensor, nn

import layerscope
from layerscope import (
    Arm,
    BackendError,
    CallableOptions,
    Comparison,
    InputError,
    LayerscopeError,
    LayerSpec,
    MeasurementError,
    RecordError,
    Region,
    Run,
    Study,
    Timeline,
    load,
    load_trace,
    profile,
    region,
    role,
)


def plan(spec: LayerSpec) -> Study:
    """A study of two arms."""
    arms = (Arm(backend="reference"), Arm(backend="mine", switches={"pdl": "stock"}))
    assert_type(arms[1].name, str)
    return Study(spec=spec, arms=arms, samples=800)


def read(path: Path) -> Run | None:
    """A run, or None with its reason on the terminal."""
    errors: tuple[type[LayerscopeError], ...] = (
        BackendError,
        InputError,
        MeasurementError,
        RecordError,
    )
    try:
        run = load(path)
    except errors as error:
        assert_type(error.exit_code, int)
        return None
    assert_type(run, Run)
    return run


def read_trace(path: Path) -> Run:
    """A trace of another tool."""
    load_trace(path)
    return load_trace(str(path), rules="rules.toml")


def look(run: Run) -> Comparison:
    """Frames, charts and comparisons of a run."""
    assert_type(run.regions, pl.DataFrame)
    run.plot.timeline(["reference"], dark=True).save("timeline.svg")
    assert_type(run.timeline("reference"), Timeline)
    found = run.compare("reference", "mine")
    assert_type(found.difference.value, float)
    return found


def measured() -> None:
    """Code under measurement, by enum and by name."""
    with region(Region.MOE), region("attention"), role("gate_up"):
        pass


def compare(base: nn.Module, layers: nn.ModuleList, x: Tensor) -> Run:
    """Callables of every kind, with inputs and regions of every kind."""
    profile({"base": base, "one": base.forward, "all": layers}, [x])
    profile({"base": [base, torch.relu]}, {"x": x}, {"moe": ["mlp", "gate*"]})
    options = CallableOptions(output="RUN", tolerance=1e-2, samples=80)
    run = profile({"base": base}, lambda step: (x + step,), {"moe": "mlp"}, options)
    assert_type(run, Run)
    return run


assert_type(layerscope.__version__, str)
