"""What every command prints of a run: the report, as tables or as JSON."""

import sys

from layerscope.render import console, json
from layerscope.report import build_report
from layerscope.run import Run


def print_run(run: Run, *, as_json: bool) -> None:
    """Write the report of `run` to standard output."""
    report = build_report(run)
    if as_json:
        sys.stdout.write(json.render(report, run))
    else:
        console.print_report(report)
