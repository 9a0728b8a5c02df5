"""``layerscope profile --script``: callables that a Python file defines, measured."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from layerscope.cli.options import ProfileOptions
from layerscope.errors import InputError
from layerscope.render.progress import progress_on
from layerscope.run import Run
from layerscope.runner.foreign import CallableOptions, profile
from layerscope.runner.foreign.callables import rebuild
from layerscope.runner.foreign.workload import ForeignWorkload
from layerscope.runner.workload import Recipe

MODULE_NAME: Final = "layerscope_script"
"""``__name__`` in a script: not ``__main__``, so what that guards is not run."""

_APPLY: Final = {
    *("script", "arms", "device", "samples", "passes", "captures", "seed"),
    *("time_budget", "recorder", "output", "json"),
    *("no_experiments", "experiment"),
}
"""Options of ``profile`` that are not about a layer."""


def profile_script(options: ProfileOptions, output: Path, command: list[str]) -> Run:
    """Measure the ``arms`` of a script on its ``inputs``.

    The script runs as ``python SCRIPT`` would run it, but for its `MODULE_NAME`: its
    folder comes first on the path, while it is measured too. It may also define
    ``regions``, ``tolerance`` and ``skippable`` (see `CallableOptions`). An exception
    in it keeps its traceback.

    Args:
        options: as typed, with a script.
        output: folder of the run, new or empty.
        command: the command line, for the record.

    Raises:
        InputError: an option does not go with a script, or the script cannot be read,
            or does not define what can be measured.
        LayerscopeError: as `layerscope.profile`.
    """
    path = options.script
    assert path is not None  # noqa: S101 (whoever calls has looked)
    _refuse_layer_options(options)
    with _running(path) as script:
        arms = _chosen(_defined(script, path), options.arms, path)
        told = ", ".join(map(str, arms)) if isinstance(arms, Mapping) else "arms"
        with progress_on(sys.stderr, f"{told} of {path}") as progress:
            return profile(
                arms,
                getattr(script, "inputs", ()),
                getattr(script, "regions", None),
                CallableOptions(
                    output=output,
                    device=options.device,
                    tolerance=_tolerance(script, path),
                    experiments=not options.no_experiments,
                    edits=options.experiment or (),
                    skippable=_skippable(script, path),
                    recipe=_recipe(path, options.arms),
                    samples=options.samples,
                    passes=options.passes,
                    captures=options.captures,
                    seed=options.seed,
                    time_budget_s=options.time_budget,
                    recorder=options.recorder,
                    command=command,
                    progress=progress,
                ),
            )


def _recipe(path: Path, chosen: str | None) -> Recipe:
    return Recipe(
        factory=f"{__name__}:{rebuild_script.__name__}",
        arguments={"path": str(path.resolve()), "chosen": chosen},
    )


def rebuild_script(
    path: str,
    chosen: str | None,
    *,
    arms: Sequence[str],
    passes: int,
    device: str,
) -> ForeignWorkload:
    """The arms of a script once more, in the process where edited graphs run first.

    The first arm is among them whether it is asked for or not: all are compared with
    it. The script stays importable.

    Args:
        path: of the script.
        chosen: what ``--arms`` said, which is what the first arm hangs on.
        arms: names of those to make.
        passes: of every replay; callables take turns as they do in longer ones.
        device: of torch.
    """
    del passes
    where = Path(path)
    script = _run(where)
    defined = _chosen(_defined(script, where), chosen, where)
    wanted = {
        name: functions
        for index, (name, functions) in enumerate(defined.items())
        if index == 0 or name in arms
    }
    return rebuild(
        wanted,
        getattr(script, "inputs", ()),
        getattr(script, "regions", None) or {},
        CallableOptions(
            device=torch.device(device).type,
            tolerance=_tolerance(script, where),
            skippable=_skippable(script, where),
        ),
    )


def _refuse_layer_options(options: ProfileOptions) -> None:
    given = [
        f"--{each.name.replace('_', '-')}"
        for each in fields(options)
        if each.name not in _APPLY and getattr(options, each.name) != each.default
    ]
    if given:
        msg = f"{', '.join(given)} describe a layer, and --script brings its own code"
        raise InputError(msg)


@contextmanager
def _running(path: Path) -> Iterator[ModuleType]:
    """The module that the script at `path` makes, importable for the block."""
    arguments = sys.argv
    try:
        yield _run(path)
    finally:
        sys.argv = arguments
        folder = _folder(path)
        if folder in sys.path:
            sys.path.remove(folder)
        sys.modules.pop(MODULE_NAME, None)


def _run(path: Path) -> ModuleType:
    """Run the script at `path`; its module, which stays importable."""
    try:
        path.read_bytes()
    except OSError as error:
        msg = f"--script {path}: {error.strerror}"
        raise InputError(msg) from error
    spec = spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        msg = f"--script {path} is no Python file: its name must end in .py"
        raise InputError(msg)
    script = module_from_spec(spec)
    sys.modules[MODULE_NAME] = script
    sys.path.insert(0, _folder(path))
    sys.argv = [str(path)]
    try:
        spec.loader.exec_module(script)
    except SystemExit as error:
        msg = f"{path} ended itself with exit code {error.code}; it must run to its end"
        raise InputError(msg) from error
    return script


def _folder(path: Path) -> str:
    return str(path.resolve().parent)


def _defined(script: ModuleType, path: Path) -> Any:  # noqa: ANN401 (of foreign code)
    if not hasattr(script, "arms"):
        msg = f'{path} defines no arms; write arms = {{"base": ..., "fused": ...}}'
        raise InputError(msg)
    return script.arms


def _chosen(arms: Any, wanted: str | None, path: Path) -> Any:  # noqa: ANN401
    """Those of `arms` that ``--arms`` names, in its order."""
    if wanted is None or not isinstance(arms, Mapping):
        return arms
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in arms:
            known = ", ".join(map(str, arms))
            msg = f"--arms: {path} has no arm {name!r}; it has {known}"
            raise InputError(msg)
        if names.count(name) > 1:
            msg = f"--arms names {name} twice; the A/A capture is made without asking"
            raise InputError(msg)
    return {name: arms[name] for name in names}


def _tolerance(script: ModuleType, path: Path) -> float | None:
    found = getattr(script, "tolerance", None)
    if found is None or isinstance(found, int | float):
        return found
    msg = f"{path}: tolerance is {found!r}, and must be a number"
    raise InputError(msg)


def _skippable(script: ModuleType, path: Path) -> tuple[str, ...]:
    found = getattr(script, "skippable", ())
    is_text = isinstance(found, str)  # a sequence too, whose letters would be regions
    if isinstance(found, Sequence) and not is_text and all(map(_is_text, found)):
        return tuple(found)
    msg = f"{path}: skippable is {found!r}, and must be a list of regions' names"
    raise InputError(msg)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
