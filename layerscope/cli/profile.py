"""``layerscope profile``: measure one layer on this machine and report it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli.interrupts import interruptible
from layerscope.cli.needs import need_torch
from layerscope.cli.options import ProfileOptions, takes
from layerscope.cli.streams import tell
from layerscope.errors import DeviceLostError

if TYPE_CHECKING:  # both need what a plain install lacks
    from layerscope.cli.plan import Plan
    from layerscope.run import Run


@takes(ProfileOptions)
def command(options: ProfileOptions, arguments: list[str]) -> None:
    """Measure a decoder layer, or your own code, by region."""
    output: Path | None = None
    command_line = ["layerscope", *arguments]
    with interruptible():
        try:
            need_torch("profile")
            if options.script is not None:
                from layerscope.cli.script import profile_script
                from layerscope.run import new_run_folder

                output = options.output or new_run_folder(options.script.stem)
                run = profile_script(options, output, command_line)
            else:
                planned = _plan(options)
                output = planned.output
                run = _run(planned, options.recorder, command_line)
        except KeyboardInterrupt:
            tell(f"interrupted; {_kept(output)}")
            raise
        except DeviceLostError as error:
            if options.experiment or _has_run(output):
                raise
            _begin_again(error, arguments)
            raise  # where a program cannot become another one

    from layerscope.cli.output import print_run

    print_run(run, as_json=options.json)
    tell(f"saved; see it again: layerscope show {output}")


def _begin_again(error: DeviceLostError, arguments: list[str]) -> None:
    """Become the same command without experiments: nothing is lost, none was timed.

    It must be a process of its own, for this one can use the device no more, and must
    not hold it.
    """
    tell(f"{error}; beginning again so")
    sys.stdout.flush()
    sys.stderr.flush()
    again = [*arguments, "--no-experiments"]
    os.execv(sys.executable, [sys.executable, "-m", "layerscope", *again])  # noqa: S606


def _plan(options: ProfileOptions) -> "Plan":
    """What to measure, with a line for every backend that does not fit."""
    from layerscope.cli.plan import plan
    from layerscope.graphs.device import resolve

    planned = plan(options, resolve(options.device))
    for reason in planned.left_out:
        tell(f"left out {reason}")
    return planned


def _run(planned: "Plan", recorder: str, command_line: list[str]) -> "Run":
    from layerscope.render.progress import progress_on
    from layerscope.runner import RunnerOptions, profile

    with progress_on(sys.stderr, _size(planned)) as progress:
        return profile(
            planned.study,
            RunnerOptions(
                device=planned.device,
                output=planned.output,
                recorder=recorder,
                model_folder=planned.model_folder,
                optional=planned.optional,
                left_out=planned.left_out,
                command=command_line,
                progress=progress,
            ),
        )


def _size(planned: "Plan") -> str:
    """What is made before anything is measured, for whoever waits for it."""
    from layerscope.layers.families import estimate_bytes, required_bytes
    from layerscope.units import format_bytes

    study, spec = planned.study, planned.spec
    model = spec.model
    experts = min(model.experts, spec.rows * model.experts_per_token) or None
    made = format_bytes(estimate_bytes(spec, study.passes, study.steps))
    needed = format_bytes(sum(required_bytes(spec, experts).values()))
    at_most = "" if experts is None else "up to "
    return (
        f"{study.passes} passes of weights and KV: {made}; "
        f"a pass must move {at_most}{needed}"
    )


def _has_run(output: Path | None) -> bool:
    """Whether something was measured into `output`."""
    from layerscope.run import HEADER_FILE

    return output is not None and (output / HEADER_FILE).is_file()


def _kept(output: Path | None) -> str:
    """What an interrupted study has left, for whoever interrupted it."""
    if _has_run(output):
        return f"see what was kept: layerscope show {output}"
    return "nothing was recorded"
