"""Backends: discover by entry point, check, build, dispatch region by region."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from layerscope import coverage
from layerscope.arm_switches import check_switches, switch_values
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError, InputError, describe
from layerscope.layers.draft import DraftProblem
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    BackendSpec,
    BuildContext,
    Built,
    DraftContext,
    DraftStep,
    Stamping,
    Step,
    StepShape,
    Waits,
    WholeStep,
)
from layerscope.plugin_fields import faults
from layerscope.regions import Region
from layerscope.run_header import Build, Decision
from layerscope.study import Arm

FALLBACK: Final = "reference"

_OWN: Final = EntryPoint(
    FALLBACK, "layerscope.layers.reference:BACKEND", ENTRY_POINT_GROUP
)
"""Known even where layerscope runs from a checkout that was never installed."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An arm ready to run a layer: who runs each region, and what deciding cost."""

    arm: Arm
    backend: BackendSpec
    steps: Mapping[Region, Step]
    """By region; empty where `whole` runs them all."""

    whole: WholeStep | None
    decisions: tuple[Decision, ...]
    build: Build
    waits: Waits
    """What waits of the backend's kernels obey."""

    @property
    def stamping(self) -> Stamping | None:
        """The step whose kernels note when their blocks work, if there is one."""
        steps: tuple[object, ...] = (self.whole, *self.steps.values())
        return next((step for step in steps if isinstance(step, Stamping)), None)


@dataclass(frozen=True, slots=True)
class DispatchedDraft:
    """An arm ready to run a draft."""

    arm: Arm
    backend: BackendSpec
    step: DraftStep
    build: Build
    waits: Waits


def discover() -> dict[str, EntryPoint]:
    """Entry points of all installed backends by name; imports none of them.

    One object offered twice, as by a checkout and its installation, is one backend.

    Raises:
        BackendError: two backends have one name; says who offers them.
    """
    found = {FALLBACK: _OWN}
    clashes = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP)):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            both = f"{origin(other)} and {origin(entry)}"
            clashes.append(f"two backends are called {entry.name}: {both}")
        elif other.dist is None:
            found[entry.name] = entry
    if clashes:
        msg = f"{'; '.join(clashes)}; uninstall one of them"
        raise BackendError(msg)
    return dict(sorted(found.items()))


def origin(entry: EntryPoint) -> str:
    """Where a backend comes from, such as ``fused.plugin:BACKEND of fused 1.0``."""
    offered = f" of {entry.dist.name} {entry.dist.version}" if entry.dist else ""
    return f"{entry.value}{offered}"


def load(name: str) -> BackendSpec:
    """Import the backend called `name`.

    Raises:
        InputError: there is none of that name; lists those there are.
        BackendError: it cannot be imported, is no `BackendSpec` of that name, or
            speaks another contract version.
    """
    found = discover()
    if name not in found:
        close = get_close_matches(name, found, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        msg = f"unknown arm {name!r}; {hint}backends here: {', '.join(found)}"
        raise InputError(msg)
    entry = found[name]
    if not entry.pattern.match(entry.value):
        msg = f"backend {name} ({origin(entry)}) is no module:object; tell its author"
        raise BackendError(msg)
    try:
        backend: object = entry.load()
    except (Exception, SystemExit) as error:
        # As in `reasons`: what is wrong with foreign code must not end what is not.
        msg = (
            f"backend {name} ({origin(entry)}) cannot be imported: {describe(error)}; "
            f"see where: python -c 'import {entry.module}'"
        )
        raise BackendError(msg) from error
    return _checked(entry, backend)


def _checked(entry: EntryPoint, backend: object) -> BackendSpec:
    name = entry.name
    if not isinstance(backend, BackendSpec):
        msg = f"backend {name} ({origin(entry)}) is not a BackendSpec"
        raise BackendError(msg)
    if backend.api_version != API_VERSION:
        msg = (
            f"backend {name} speaks contract version {backend.api_version}, this "
            f"layerscope version {API_VERSION}; install a matching release"
        )
        raise BackendError(msg)
    if backend.name != name:
        msg = (
            f"backend {name} ({origin(entry)}) calls itself {backend.name}; its entry "
            "point must have the same name"
        )
        raise BackendError(msg)
    if wrong := "; ".join(faults(backend)):
        msg = f"backend {name} ({origin(entry)}) is broken: {wrong}; tell its author"
        raise BackendError(msg)
    return backend


def reasons(
    backend: BackendSpec,
    arm: Arm,
    spec: LayerSpec,
    device: DeviceFacts,
    draft: DraftSpec | None = None,
) -> list[str]:
    """Every reason why `arm` cannot run `spec` and `draft` on `device`; no GPU work.

    Each reads on from the arm's name. A check of the backend's that fails is one too.
    """
    found = check_switches(arm, backend)
    try:
        refused = backend.refusals(spec, device)
        found += refused
        if not refused:
            # Asks for what is declined, too; must not fail once weights are made.
            coverage.idle_switches(backend, spec, device)
            if draft is not None and backend.build_draft is not None:
                coverage.idle_switches(backend, draft, device)
    except Exception as error:  # noqa: BLE001 (as in `load`)
        found.append(f"cannot be checked ({describe(error)}); tell its author")
    covers = backend.covers.get(spec.model.family)
    if covers is not None and not set(covers).intersection(spec.regions):
        found.append(f"covers no region of {spec.model.family}")
    return found


def dispatch(
    arm: Arm, problem: Problem, backend: BackendSpec | None = None
) -> Dispatched:
    """Build the arm's backend, and the fallback for regions that it leaves to it.

    A backend that leaves all of them is not built; each decision says so.

    Args:
        arm: which backend, and its switches.
        problem: what to build it for.
        backend: the arm's, where it is not to be found by name.

    Raises:
        BackendError: a build failed, or it is not clear who runs some region.
    """
    backend = backend or load(arm.backend)
    start_s = time.perf_counter()
    regions, left = problem.spec.regions, coverage.left(backend, problem.spec)
    step, device_bytes, waits = None, 0, Waits.on(problem.device)
    if len(left) < len(regions):
        step, device_bytes = _own(arm, backend, problem, waits)
    steps: dict[Region, Step] = {}
    if isinstance(step, WholeStep):
        coverage.refuse_whole(backend, left)
        reasons = dict.fromkeys(regions, f"counted as other: {step.why_whole}")
        runs = dict.fromkeys(regions, arm.backend)
    else:
        if left:
            fallback, extra_bytes = _fallback(problem)
            steps |= dict.fromkeys(left, fallback)
            device_bytes += extra_bytes
        if step is not None:
            steps |= {region: step for region in regions if region not in left}
        reasons = {region: f"{arm.backend} {why}" for region, why in left.items()}
        runs = {name: FALLBACK if name in left else arm.backend for name in regions}
    return Dispatched(
        arm=arm,
        backend=backend,
        steps=steps,
        whole=step if isinstance(step, WholeStep) else None,
        decisions=tuple(
            Decision(arm=arm.name, region=r, backend=runs[r], reason=reasons.get(r, ""))
            for r in regions
        ),
        build=_report(arm, start_s, device_bytes),
        waits=waits,
    )


def dispatch_draft(
    arm: Arm, problem: DraftProblem, backend: BackendSpec | None = None
) -> DispatchedDraft | None:
    """Build the arm's draft; None where its backend has none for this problem.

    There is no fallback: the draft is one region, and run by another backend it would
    be that backend's arm once more. Arguments are as in `dispatch`.

    Raises:
        BackendError: the build failed.
    """
    backend = backend or load(arm.backend)
    if backend.build_draft is None:
        return None
    start_s = time.perf_counter()
    waits, switches = Waits.on(problem.device), switch_values(arm, backend)
    context = DraftContext(problem=problem, waits=waits, switches=switches)
    built = backend.build_draft(context)
    step = built.plan(problem.spec)
    if step is None:
        return None
    build = _report(arm, start_s, built.device_bytes)
    return DispatchedDraft(arm, backend, step, build, waits)


def _build(
    backend: BackendSpec, context: BuildContext
) -> tuple[Built, Step | WholeStep | None]:
    built, spec = backend.build(context), context.problem.spec
    shape = StepShape(spec.requests, spec.tokens_per_request, spec.context)
    return built, built.plan(shape)


def _own(
    arm: Arm, backend: BackendSpec, problem: Problem, waits: Waits
) -> tuple[Step | WholeStep, int]:
    """The step of the arm's own backend, and the bytes that it allocated."""
    context = BuildContext(
        problem=problem,
        waits=waits,
        switches=switch_values(arm, backend),
        stamps=arm.stamps,
    )
    built, step = _build(backend, context)
    if step is None:
        why = f"it would be {FALLBACK} once more; leave it out of --arms"
        msg = f"{arm.name} declined this step: {why}"
        raise BackendError(msg)
    return step, built.device_bytes


def _fallback(problem: Problem) -> tuple[Step, int]:
    """The step of the fallback, and the bytes that it allocated."""
    context = BuildContext(problem=problem, waits=Waits.on(problem.device))
    built, step = _build(load(FALLBACK), context)
    if step is None or isinstance(step, WholeStep):
        msg = f"the fallback {FALLBACK} declined the step; this is a bug, please report"
        raise BackendError(msg)
    return step, built.device_bytes


def _report(arm: Arm, start_s: float, device_bytes: int) -> Build:
    seconds = round(time.perf_counter() - start_s, 3)
    return Build(arm=arm.name, seconds=seconds, device_bytes=device_bytes)
