"""Where a study runs, who watches, and what all runs have in common."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import torch

from layerscope.environment import Environment, collect
from layerscope.errors import describe
from layerscope.graphs import device as devices
from layerscope.graphs.memory import peak_memory_bytes
from layerscope.progress import Progress, SilentProgress
from layerscope.record.recorder import Recorder
from layerscope.record.recorders import recorder_for
from layerscope.run import Run, RunWriter
from layerscope.run_header import RunHeader
from layerscope.study import Arm, Study

Built = TypeVar("Built")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """What a run needs besides its study."""

    output: Path
    device: str = "auto"
    recorder: str = "auto"
    model_folder: Path | None = None
    """Where the layer's weights are read from; None makes seeded random ones."""

    optional: frozenset[str] = frozenset()
    """Arms that nobody named: one that fails is left out with a warning."""

    left_out: tuple[str, ...] = ()
    """Arms that were left out before, each with its reasons."""

    command: list[str] = field(default_factory=list)
    progress: Progress = field(default_factory=SilentProgress)


@dataclass(frozen=True, slots=True)
class Setting:
    """The device of a run, its recorder, and what the user asked for."""

    device: torch.device
    environment: Environment
    recorder: Recorder | None
    options: RunnerOptions

    @property
    def progress(self) -> Progress:
        """Who is told how far the run is."""
        return self.options.progress

    def header(self, study: Study) -> RunHeader:
        """The header of a run of `study` that begins now."""
        return RunHeader(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=self.options.command,
            study=study,
            environment=self.environment,
            recorder=self.recorder.name if self.recorder else "",
        )

    def build(self, arm: Arm, build: Callable[[], Built]) -> Built | str:
        """What `build` makes for `arm`, or why the arm is left out.

        Raises:
            Exception: whatever it raised, with a note that names the arm, if somebody
                asked for it.
        """
        try:
            return build()
        except Exception as error:  # foreign code may raise anything
            if arm.name not in self.options.optional:
                error.add_note(f"raised while arm {arm.name!r} was built")
                raise
            return f"left out {arm.name}: {describe(error)}"


def open_setting(device: torch.device, options: RunnerOptions) -> Setting:
    """Look at `device` and take the recorder that was asked for.

    Raises:
        InputError: there is no such recorder.
        MeasurementError: the recorder cannot be used here.
    """
    recorder = recorder_for(options.recorder, device)
    return Setting(device, collect(devices.facts(device)), recorder, options)


def finish(
    writer: RunWriter, began_s: float, made_s: float, before: str = "weights"
) -> Run:
    """Note what the run took, and write it as complete.

    Args:
        writer: of the run.
        began_s: monotonic time at which the problem began to be made.
        made_s: monotonic time at which it was, and the study began.
        before: what took the time between the two.
    """
    writer.header.host_memory_bytes = peak_memory_bytes()
    writer.header.seconds = {
        before: round(made_s - began_s, 1),
        "study": round(time.monotonic() - made_s, 1),
    }
    phases = writer.header.phases
    writer.header.phases = {name: round(spent_s, 1) for name, spent_s in phases.items()}
    return writer.finish("complete")
