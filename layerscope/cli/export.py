"""``layerscope export``: recorded passes as a trace for Perfetto."""

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.errors import InputError, RecordError

if TYPE_CHECKING:  # polars and protocol buffers, which --help does without
    from layerscope.render.perfetto import Exported


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The trace, a new file; ui.perfetto.dev shows it.",
            metavar="FILE.pftrace",
        ),
    ],
    arms: Annotated[
        str | None,
        typer.Option(
            help="Some of the arms; with each, its serial twin.",
            metavar="A,..",
            show_default="all that were recorded",
        ),
    ] = None,
    every_pass: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every pass of every replay, not only the median one of each arm and "
            "those beside it.",
        ),
    ] = False,
) -> None:
    """Write recorded passes as a trace for Perfetto."""
    from layerscope.cli.needs import need
    from layerscope.cli.streams import tell

    need("perfetto", "export")
    names = _names(arms)
    _check(output)
    try:
        exported = _export(run, output, names, every_pass=every_pass)
    except OSError as error:
        raise RecordError(_failure(output, error)) from error
    tell(f"{_sizes(exported)} in {output}; see them at https://ui.perfetto.dev")


def _names(arms: str | None) -> list[str]:
    """The names in ``--arms``; none where it is not given."""
    if arms is None:
        return []
    names = [name.strip() for name in arms.split(",")]
    if not all(names):
        msg = f"--arms {arms!r} has an arm without a name; write A,B"
        raise InputError(msg)
    return names


def _check(output: Path) -> None:
    """Refuse what could not be written, or would be lost, before any work."""
    if output.exists():
        msg = f"{output} already exists; choose another --output"
        raise InputError(msg)
    if not output.parent.is_dir():
        msg = f"--output {output}: there is no folder {output.parent}"
        raise InputError(msg)


def _export(
    run: Path, output: Path, arms: list[str], *, every_pass: bool
) -> "Exported":
    """Write the trace; it is there whole, or not at all."""
    from layerscope.atomic import new_file
    from layerscope.render.perfetto import export_all, export_median
    from layerscope.replays import load_without_kernels
    from layerscope.run import load

    recorded = load_without_kernels(run) if every_pass else load(run)
    with new_file(output) as file:
        if every_pass:
            return export_all(recorded, file, arms)
        return export_median(recorded, file, arms)


def _failure(output: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"disk full while writing {output}; free some space and try again"
    return f"cannot write {output} ({error.strerror}); choose another --output"


def _sizes(exported: "Exported") -> str:
    from layerscope.units import format_count, format_things

    many = "pass" if exported.passes == 1 else "passes"
    passes = f"{format_count(exported.passes)} {many}"
    graphs = format_things(exported.processes, "graph")
    return f"{format_things(exported.kernels, 'kernel')} of {passes} of {graphs}"
