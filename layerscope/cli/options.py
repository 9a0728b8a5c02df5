"""Options of a command as one dataclass: each is declared once, with type and help."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias, TypeVar

import typer

from layerscope.layers.spec import DType, Routing

Options = TypeVar("Options")


class Command(Protocol):
    """A function that typer can call with one keyword argument an option."""

    def __call__(self, invocation: typer.Context, **values: object) -> None:
        """Run the command."""


Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of tables.")
]


ShardShaped: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--shard-shaped",
        help="Measure one rank's slice on one GPU, communication left out.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Which layer and step, on which device; None where the device decides."""

    model: Annotated[
        str | None,
        typer.Option(
            help="A preset, or a folder with config.json and safetensors.",
            metavar="PRESET|DIR",
            show_default="tiny-moe on a CPU, qwen3-30b-a3b on a GPU",
        ),
    ] = None
    layer: Annotated[int, typer.Option(help="Which decoder layer, from 0.")] = 0
    requests: Annotated[int, typer.Option(help="Concurrent requests.")] = 1
    draft_tokens: Annotated[
        int, typer.Option(help="Draft tokens that every request verifies in the step.")
    ] = 5
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens in the KV cache of every request.",
            show_default="512 on a CPU, 8192 on a GPU",
        ),
    ] = None
    page_size: Annotated[int, typer.Option(help="Tokens a page of the KV cache.")] = 16
    routing: Annotated[
        Routing, typer.Option(help="How the pinned experts are drawn.")
    ] = Routing.UNIFORM
    dtype: Annotated[
        DType | None,
        typer.Option(
            help="Type of activations.",
            show_default="float32 on a CPU, bfloat16 on a GPU",
        ),
    ] = None
    weights: Annotated[
        DType | None,
        typer.Option(
            help="Type of weights.",
            show_default="as a model's folder says, else as --dtype",
        ),
    ] = None
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions(StepOptions):
    """Which layer, and how many ranks share it."""

    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1
    shard_shaped: ShardShaped = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions(LayerOptions):
    """``layerscope profile`` as typed."""

    script: Annotated[
        Path | None,
        typer.Option(
            help="A Python file that defines callables as arms, instead of a layer.",
            metavar="FILE",
        ),
    ] = None
    arms: Annotated[
        str | None,
        typer.Option(
            help="Backends to compare, or arms of --script; all others are compared "
            "with the first.",
            metavar="A,B:SWITCH=VALUE",
            show_default="reference and every other backend that fits; all of --script",
        ),
    ] = None
    each_switch: Annotated[
        bool,
        typer.Option(
            "--each-switch",
            help="Tell the switches of every backend apart: each alone, and all but "
            "each.",
        ),
    ] = False
    stamps: Annotated[
        bool,
        typer.Option(
            "--stamps",
            help="Also run every arm with kernels that note when each of their blocks "
            "waits and works, where its backend can.",
        ),
    ] = False
    no_draft: Annotated[
        bool,
        typer.Option(
            "--no-draft", help="Leave out the draft that fills the step's rows."
        ),
    ] = False
    no_experiments: Annotated[
        bool,
        typer.Option(
            "--no-experiments",
            help="Edit no graph: no serial twins, no regions left out, no limits.",
        ),
    ] = False
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            help="One more edit of every arm's graph: 'serial passes', 'serial moe', "
            "'programmatic', 'moe delayed by 2000 ns'. May be given again.",
            metavar="EDIT",
            show_default=False,
        ),
    ] = None
    samples: Annotated[int, typer.Option(help="Passes an arm, at least.")] = 800
    passes: Annotated[
        int | None,
        typer.Option(
            help="Passes of the longest replay.",
            show_default="8 on a CPU, 24 on a GPU",
        ),
    ] = None
    captures: Annotated[int, typer.Option(help="Fresh captures of every arm.")] = 8
    seed: Annotated[
        int, typer.Option(help="Fixes weights, inputs, routing and order.")
    ] = 0
    time_budget: Annotated[
        float,
        typer.Option(
            help="Seconds for the study once weights exist, three tenths of them the "
            "draft's; trying edited graphs elsewhere comes on top. Three captures of "
            "six rounds are made however long they take; what is cut carries a warning."
        ),
    ] = 80.0
    recorder: Annotated[
        str, typer.Option(help="auto, cupti, torch.profiler, or none.")
    ] = "auto"
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the run, new or empty.",
            metavar="RUN",
            show_default="layerscope-runs/TIME-MODEL",
        ),
    ] = None
    json: Json = False


def takes(
    options: type[Options],
) -> Callable[[Callable[[Options, list[str]], None]], Command]:
    """Make a command of a function of (`options`, the arguments as typed).

    Typer reads options from a function's signature; it is given the dataclass's.
    """

    def decorate(function: Callable[[Options, list[str]], None]) -> Command:
        def command(invocation: typer.Context, **values: object) -> None:
            function(options(**values), list(invocation.obj))

        own, _ = inspect.signature(command).parameters.values()
        fields = inspect.signature(options).parameters.values()
        command.__signature__ = inspect.Signature([own, *fields])  # type: ignore[attr-defined]
        command.__doc__ = function.__doc__
        return command

    return decorate
