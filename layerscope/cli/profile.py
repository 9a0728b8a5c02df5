"""``layerscope profile``: measure one layer on this machine and report it."""

import sys

import typer

from layerscope.cli.options import ProfileOptions, takes
from layerscope.errors import MeasurementError


@takes(ProfileOptions)
def command(options: ProfileOptions, arguments: list[str]) -> None:
    """Measure one decoder layer and print where its time goes."""
    try:
        import torch  # noqa: F401 (what is missing in a plain install)
    except ModuleNotFoundError as error:
        msg = "profile needs torch; pip install 'layerscope[profile]'"
        raise MeasurementError(msg) from error

    from layerscope.cli.output import print_run
    from layerscope.cli.plan import plan
    from layerscope.graphs.device import resolve
    from layerscope.render.progress import progress_on
    from layerscope.run import HEADER_FILE
    from layerscope.runner import RunnerOptions, profile

    planned = plan(options, resolve(options.device))
    for reason in planned.left_out:
        typer.echo(f"left out {reason}", err=True)
    try:
        with progress_on(sys.stderr) as progress:
            run = profile(
                planned.study,
                RunnerOptions(
                    device=planned.device,
                    output=planned.output,
                    recorder=options.recorder,
                    model_folder=planned.model_folder,
                    command=["layerscope", *arguments],
                    progress=progress,
                ),
            )
    except KeyboardInterrupt:
        if (planned.output / HEADER_FILE).is_file():
            note = f"interrupted; see what was kept: layerscope show {planned.output}"
            typer.echo(note, err=True)
        raise
    typer.echo(f"saved; see it again: layerscope show {planned.output}", err=True)
    print_run(run, as_json=options.json)
