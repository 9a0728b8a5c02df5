"""Uses every public name as a user would; only type-checked, never run."""

from pathlib import Path
from typing import assert_type

import layerscope
from layerscope import (
    Arm,
    BackendError,
    InputError,
    LayerscopeError,
    LayerSpec,
    MeasurementError,
    RecordError,
    Region,
    Run,
    Study,
    load,
    region,
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


def measured() -> None:
    """Code under measurement, by enum and by name."""
    with region(Region.MOE), region("attention"):
        pass


assert_type(layerscope.__version__, str)
