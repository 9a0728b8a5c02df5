"""``layerscope limits``: what order, bytes and dependencies alone cost here."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli.interrupts import interruptible
from layerscope.cli.options import Json, LayerOptions, ShardShaped, StepOptions, takes
from layerscope.errors import InputError, MeasurementError

if TYPE_CHECKING:  # both need what a plain install lacks
    import torch

    from layerscope.layers.spec import LayerSpec
    from layerscope.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOptions(StepOptions):
    """``layerscope limits`` as typed."""

    tp: Annotated[
        str, typer.Option(help="Tensor-parallel ranks, or several such as 1,2,4,8.")
    ] = "1"
    shard_shaped: ShardShaped = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A file that gets the JSON too.", metavar="FILE"
        ),
    ] = None
    json: Json = False


@takes(LimitsOptions)
def command(options: LimitsOptions, _: list[str]) -> None:
    """Measure what order, bytes and dependencies alone cost here."""
    from layerscope.cli.needs import need_torch

    need_torch("limits")

    from layerscope.cli.output import print_report
    from layerscope.graphs.device import refusals, resolve
    from layerscope.runner.limits import check_device

    device = resolve(options.device)
    specs = [_spec(options, ranks, device) for ranks in _ranks(options.tp)]
    check_device(device)
    reasons = refusals(device)
    if reasons:
        raise MeasurementError("; ".join(reasons))
    with interruptible():
        report = _measured(specs, device)
    if options.output is not None:
        _write(report, options.output)
    print_report(report, as_json=options.json)


def _ranks(text: str) -> list[int]:
    """The numbers of ``1,2,4,8``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        msg = f"--tp {text!r} is neither a number of ranks nor several: write 1,2,4,8"
        raise InputError(msg) from error


def _spec(options: LimitsOptions, ranks: int, device: "torch.device") -> "LayerSpec":
    """The layer on so many ranks; a whole one beside slices is no slice."""
    from layerscope.cli.plan import layer

    known = asdict(options)
    names = LayerOptions.__dataclass_fields__
    values = {name: known[name] for name in names} | {"tp": ranks}
    if ranks == 1 and options.tp != "1":
        values["shard_shaped"] = False
    spec, _folder = layer(LayerOptions(**values), device)
    return spec


def _measured(specs: "list[LayerSpec]", device: "torch.device") -> "Report":
    from layerscope.graphs.device import facts
    from layerscope.graphs.skeleton import standard_chain
    from layerscope.layers.tensors import activation_bytes
    from layerscope.render.progress import progress_on
    from layerscope.report.limits import Limits, limits_report
    from layerscope.runner.limit_times import Effort
    from layerscope.runner.limits import (
        STANDARD,
        mean_experts,
        measure_bounds,
        measure_reads,
    )

    measured = []
    with progress_on(sys.stderr, "measuring limits, cold") as progress:
        effort = Effort(progress=progress)
        for spec in specs:
            experts = mean_experts(spec)
            chain = {STANDARD: standard_chain(spec, experts)}
            bounds = measure_bounds(chain, activation_bytes(spec), device, effort)
            measured.append(Limits(spec, experts, bounds))
        reads = measure_reads(device, effort)
    return limits_report(facts(device), measured, reads)


def _write(report: "Report", path: Path) -> None:
    from layerscope.render.json import render

    try:
        path.write_text(render(report), encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}; choose another --output"
        raise InputError(msg) from error
