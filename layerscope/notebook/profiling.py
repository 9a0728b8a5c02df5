"""Measuring in a notebook or any Python session, with progress where it is seen."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import ParamSpec

from layerscope import run as runs
from layerscope.notebook.run import Run
from layerscope.progress import SilentProgress
from layerscope.render.progress import progress_here
from layerscope.runner import foreign
from layerscope.runner.foreign import CallableOptions

_Given = ParamSpec("_Given")


def _shown(measure: Callable[_Given, runs.Run]) -> Callable[_Given, Run]:
    """`measure` with progress where its options bring none, and a run to look at."""

    @wraps(measure)
    def measured(*positional: _Given.args, **keyword: _Given.kwargs) -> Run:
        given = signature(measure).bind(*positional, **keyword)
        options = given.arguments.get("options") or CallableOptions()
        if not isinstance(options.progress, SilentProgress):
            return Run.of(measure(*positional, **keyword))
        with progress_here() as progress:
            given.arguments["options"] = replace(options, progress=progress)
            return Run.of(measure(*given.args, **given.kwargs))

    return measured


profile = _shown(foreign.profile)
