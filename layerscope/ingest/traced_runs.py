"""Files of other tools, read as runs."""

from pathlib import Path

from layerscope.analyze.kernel_rules import load_rules
from layerscope.analyze.placing import place_trace
from layerscope.analyze.swept_trace import sweep_trace
from layerscope.ingest.read import ReadOptions, read_traces
from layerscope.ingest.saving import run_of
from layerscope.run import Run


def read_as_run(
    path: Path | str, options: ReadOptions | None = None, rules: Path | None = None
) -> Run:
    """The traces in a file or folder as a run in memory.

    Args:
        path: of the file or folder.
        options: how it is read.
        rules: a table of names of kernels, which come before those known here.

    Raises:
        InputError: it cannot be read, or no kernel is in it.
    """
    known = load_rules(rules)
    reading = read_traces([path], options=options)
    swept = []
    for trace in reading.traces:
        placed = place_trace(trace, known)
        swept.append(
            sweep_trace(trace, placed.kernels, placed.without_layers, placed.cut)
        )
    run = run_of(swept, path)
    run.header.warnings.extend(
        f"{skipped.name} {skipped.reason}" for skipped in reading.skipped
    )
    return run
