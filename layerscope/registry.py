"""Backends: discover by entry point, check, build, dispatch region by region."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from layerscope.errors import BackendError, InputError
from layerscope.layers.problem import Problem
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    BackendSpec,
    BuildContext,
    Built,
    Step,
    StepShape,
)
from layerscope.regions import Region
from layerscope.run import Build, Decision
from layerscope.study import Arm

FALLBACK: Final = "reference"

_OWN: Final = EntryPoint(
    FALLBACK, "layerscope.layers.reference:BACKEND", ENTRY_POINT_GROUP
)
"""Known even where layerscope runs from a checkout that was never installed."""


_BROKEN: Final = (
    *(ImportError, AttributeError),  # it, or what it needs, is not there
    *(TypeError, ValueError),  # written against another version of the contract
    *(OSError, RuntimeError, SyntaxError),  # a shared library, a driver, a Python
)
"""What importing a broken backend raises; anything else is a bug that shows itself."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An arm ready to run: who runs each region, and what deciding that cost."""

    arm: Arm
    backend: BackendSpec
    steps: Mapping[Region, Step]
    decisions: tuple[Decision, ...]
    build: Build


def discover() -> dict[str, EntryPoint]:
    """Entry points of all installed backends by name; imports none of them.

    Raises:
        BackendError: two distributions offer a backend of the same name.
    """
    found = {FALLBACK: _OWN}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            msg = (
                f"two backends are called {entry.name}: {other.value} and "
                f"{entry.value}; uninstall one of them"
            )
            raise BackendError(msg)
        found[entry.name] = entry
    return dict(sorted(found.items()))


def load(name: str) -> BackendSpec:
    """Import the backend called `name`.

    Raises:
        InputError: there is none of that name; lists those there are.
        BackendError: it cannot be imported, or speaks another contract version.
    """
    found = discover()
    if name not in found:
        close = get_close_matches(name, found, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        msg = f"unknown arm {name!r}; {hint}backends here: {', '.join(found)}"
        raise InputError(msg)
    entry = found[name]
    try:
        backend = entry.load()
    except _BROKEN as error:
        cause = f"{type(error).__name__}: {error}"
        msg = f"backend {name} ({entry.value}) cannot be imported: {cause}"
        raise BackendError(msg) from error
    if not isinstance(backend, BackendSpec):
        msg = f"backend {name} ({entry.value}) is not a BackendSpec"
        raise BackendError(msg)
    if backend.api_version != API_VERSION:
        msg = (
            f"backend {name} speaks contract version {backend.api_version}, this "
            f"layerscope version {API_VERSION}; install a matching release"
        )
        raise BackendError(msg)
    return backend


def check_switches(arm: Arm, backend: BackendSpec) -> list[str]:
    """Why the backend cannot set the switches of `arm`; each reads on from its name."""
    known = {switch.name: switch.values for switch in backend.switches}
    reasons = []
    for name, value in arm.switches.items():
        if name not in known:
            names = ", ".join(known) or "none"
            reasons.append(f"has no switch {name}; it has {names}")
        elif value not in known[name]:
            allowed = ", ".join(known[name])
            reasons.append(f"needs {name} to be one of {allowed}, not {value}")
    return reasons


def dispatch(arm: Arm, problem: Problem) -> Dispatched:
    """Build the arm's backend, and the fallback where it leaves regions out.

    Raises:
        BackendError: a build failed, or nothing runs some region.
    """
    backend = load(arm.backend)
    start_s = time.perf_counter()
    built = backend.build(BuildContext(problem=problem, switches=arm.switches))
    step = built.plan(_shape(problem.spec))
    covers = backend.covers.get(problem.spec.model.family, ())
    covered = () if step is None else covers
    missing = [region for region in problem.spec.regions if region not in covered]
    steps = {} if step is None else dict.fromkeys(covered, step)
    device_bytes = built.device_bytes
    if missing:
        fallback, fallback_step = _fallback(problem)
        steps |= dict.fromkeys(missing, fallback_step)
        device_bytes += fallback.device_bytes
    why = "declined this step" if step is None else "does not cover it"
    decisions = [
        Decision(
            arm=arm.name,
            region=region,
            backend=FALLBACK if region in missing else arm.backend,
            reason=f"{arm.backend} {why}" if region in missing else "",
        )
        for region in problem.spec.regions
    ]
    seconds = round(time.perf_counter() - start_s, 3)
    build = Build(arm=arm.name, seconds=seconds, device_bytes=device_bytes)
    return Dispatched(arm, backend, steps, tuple(decisions), build)


def _shape(spec: LayerSpec) -> StepShape:
    return StepShape(spec.requests, spec.tokens_per_request, spec.context)


def _fallback(problem: Problem) -> tuple[Built, Step]:
    built = load(FALLBACK).build(BuildContext(problem=problem))
    step = built.plan(_shape(problem.spec))
    if step is None:
        msg = f"the fallback {FALLBACK} declined the step; this is a bug, please report"
        raise BackendError(msg)
    return built, step
