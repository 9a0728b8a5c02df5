"""``layerscope export``: recorded passes as a trace for Perfetto."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli.files import check_output, output_file
from layerscope.cli.interrupts import interruptible
from layerscope.errors import InputError

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
            help="The trace, for ui.perfetto.dev; an older one is replaced.",
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
    check_output(output, "run.pftrace")
    with interruptible():
        exported = _export(run, output, names, every_pass=every_pass)
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


def _export(
    run: Path, output: Path, arms: list[str], *, every_pass: bool
) -> "Exported":
    from layerscope.render.perfetto import export_all, export_median
    from layerscope.replays import load_without_kernels
    from layerscope.run import load

    recorded = load_without_kernels(run) if every_pass else load(run)
    with output_file(output) as file:
        if every_pass:
            return export_all(recorded, file, arms)
        return export_median(recorded, file, arms)


def _sizes(exported: "Exported") -> str:
    from layerscope.units import format_count, format_things

    many = "pass" if exported.passes == 1 else "passes"
    passes = f"{format_count(exported.passes)} {many}"
    graphs = format_things(exported.processes, "graph")
    return f"{format_things(exported.kernels, 'kernel')} of {passes} of {graphs}"
