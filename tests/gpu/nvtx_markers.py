"""Prints the NVTX labels CUPTI saw while capturing, timing and recording.

A program of its own, because NVTX looks for its injection library once, when the
first range of a process opens.
"""

import os
import sys
from importlib.metadata import files
from typing import Any

os.environ["NVTX_INJECTION64_PATH"] = next(
    str(file.locate())
    for file in files("nvidia-cuda-cupti") or []
    if file.name.startswith("libcupti.so")
)

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from cupti import cupti

from layerscope.layers.presets import preset
from layerscope.layers.problem import ProblemOptions, make_problem
from layerscope.layers.spec import LayerSpec
from layerscope.record.nvtx import arm_range
from layerscope.registry import dispatch
from layerscope.run import RunWriter
from layerscope.runner import RunnerOptions
from layerscope.runner.bench import open_bench
from layerscope.runner.layer import LayerWorkload
from layerscope.study import Arm, Study

seen: list[str] = []


def completed(activities: list[Any]) -> None:
    """Keep the names of markers that open."""
    seen.extend(
        activity.name
        for activity in activities
        if activity.kind == cupti.ActivityKind.MARKER and activity.name
    )


def labels() -> str:
    """What was seen since the last call, sorted and joined."""
    torch.cuda.synchronize()
    cupti.activity_flush_all(1)
    found = ",".join(sorted(set(seen)))
    seen.clear()
    return found or "-"


def main() -> None:
    """Capture, time and record a small layer, and print the labels of each."""
    cupti.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    cupti.activity_enable(cupti.ActivityKind.MARKER)
    spec = LayerSpec(model=preset("tiny-moe"), context=64)
    study = Study(spec=spec, arms=(Arm(backend="reference"),), lengths=(2,), steps=2)
    how = ProblemOptions(passes=2, steps=2, device="cuda")
    with TemporaryDirectory() as folder, torch.no_grad():
        problem = make_problem(spec, how)
        writer = RunWriter(Path(folder) / "run", header(study))
        arms = {arm.name: dispatch(arm, problem) for arm in study.arms}
        workload = LayerWorkload(problem, arms)
        options = RunnerOptions(output=Path(folder) / "run")
        bench = open_bench(workload, writer, options, 60.0)
        labels()
        bench.capture()
        found = [labels()]
        bench.player.time([bench.longest("reference")]).durations_ns()
        found.append(labels())
        with arm_range("reference"):
            bench.longest("reference").launch()
        found.append(labels())
    sys.stdout.write("\n".join(found))


def header(study: Study) -> Any:  # noqa: ANN401 (the header is not looked at)
    """The least header a bench can be opened with."""
    from layerscope.environment import DeviceFacts, collect  # noqa: PLC0415
    from layerscope.run_header import RunHeader  # noqa: PLC0415

    facts = DeviceFacts(type="cuda", name="any")
    return RunHeader(
        created="2026-01-01T00:00:00+00:00",
        command=[],
        study=study,
        environment=collect(facts),
    )


main()
