"""Traces of other tools, as people look at them."""

from pathlib import Path

from layerscope.notebook.run import Run
from layerscope.render.progress import progress_here


def load_trace(path: Path | str, rules: Path | str | None = None) -> Run:
    """Read a trace of another tool as a run: a replay a step, a pass a layer.

    Whether it is of Kineto, Nsight Systems, rocprofv3, rocpd or Perfetto is told by its
    content. The run is in memory only, and all in it is observed: it has no anchors.

    Args:
        path: a file, or a folder with one of each rank.
        rules: a TOML table of names of kernels and their regions, which comes before
            that of layerscope.

    Raises:
        InputError: it cannot be read, is no trace, or has no kernels.
    """
    from layerscope.ingest.read import ReadOptions  # noqa: PLC0415 (all the readers)
    from layerscope.ingest.traced_runs import read_as_run  # noqa: PLC0415

    table = None if rules is None else Path(rules)
    with progress_here() as progress:
        return Run.of(read_as_run(path, ReadOptions(progress=progress), table))
