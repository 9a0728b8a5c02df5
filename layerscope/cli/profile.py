"""``layerscope profile``: measure one layer on this machine and report it."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli.interrupts import interruptible
from layerscope.cli.options import ProfileOptions, takes
from layerscope.cli.streams import tell
from layerscope.errors import MeasurementError

if TYPE_CHECKING:  # both need what a plain install lacks
    from layerscope.cli.plan import Plan
    from layerscope.run import Run
    from layerscope.study import Study


@takes(ProfileOptions)
def command(options: ProfileOptions, arguments: list[str]) -> None:
    """Measure one decoder layer and print where its time goes."""
    output: Path | None = None
    with interruptible():
        try:
            planned = _plan(options)
            output = planned.output
            run = _run(planned, options.recorder, ["layerscope", *arguments])
        except KeyboardInterrupt:
            tell(f"interrupted; {_kept(output)}")
            raise

    from layerscope.cli.output import print_run

    print_run(run, as_json=options.json)
    tell(f"saved; see it again: layerscope show {output}")


def _plan(options: ProfileOptions) -> "Plan":
    """What to measure, with a line for every backend that does not fit."""
    try:
        for name in ("torch", "safetensors"):  # what a plain install lacks
            import_module(name)
    except ModuleNotFoundError as error:
        msg = f"profile needs {error.name}; pip install 'layerscope[profile]'"
        raise MeasurementError(msg) from error

    from layerscope.cli.plan import plan
    from layerscope.graphs.device import resolve

    planned = plan(options, resolve(options.device))
    for reason in planned.left_out:
        tell(f"left out {reason}")
    return planned


def _run(planned: "Plan", recorder: str, command_line: list[str]) -> "Run":
    from layerscope.render.progress import progress_on
    from layerscope.runner import RunnerOptions, profile

    with progress_on(sys.stderr, _size(planned.study)) as progress:
        return profile(
            planned.study,
            RunnerOptions(
                device=planned.device,
                output=planned.output,
                recorder=recorder,
                model_folder=planned.model_folder,
                command=command_line,
                progress=progress,
            ),
        )


def _size(study: "Study") -> str:
    """What is made before anything is measured, for whoever waits for it."""
    from layerscope.layers.families import estimate_bytes, required_bytes
    from layerscope.units import format_bytes

    spec, model = study.spec, study.spec.model
    experts = min(model.experts, spec.rows * model.experts_per_token) or None
    made = format_bytes(estimate_bytes(spec, study.passes, study.steps))
    needed = format_bytes(sum(required_bytes(spec, experts).values()))
    at_most = "" if experts is None else "up to "
    return (
        f"{study.passes} passes of weights and KV: {made}; "
        f"a pass must move {at_most}{needed}"
    )


def _kept(output: Path | None) -> str:
    """What an interrupted study has left, for whoever interrupted it."""
    if output is not None:
        from layerscope.run import HEADER_FILE

        if (output / HEADER_FILE).is_file():
            return f"see what was kept: layerscope show {output}"
    return "nothing was recorded"
