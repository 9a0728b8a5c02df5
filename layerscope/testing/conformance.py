"""The conformance suite: all that the contract asks of a backend, in one call."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import torch

from layerscope import coverage, registry
from layerscope.errors import describe
from layerscope.graphs.device import facts, resolve
from layerscope.layers.draft_spec import draft_of
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import Family, LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.plugin_fields import faults
from layerscope.study import Arm
from layerscope.testing import declaration
from layerscope.testing.arm import ArmUnderTest
from layerscope.testing.draft import draft
from layerscope.testing.layer import footprint, values
from layerscope.testing.layers import label, real_specs, tiny_specs
from layerscope.testing.planning import build_and_plan
from layerscope.testing.raising import BackendRaisedError
from layerscope.testing.stamps import stamps
from layerscope.testing.watch import is_same

_PASSES: Final = 3
_STEPS: Final = 3


@dataclass(frozen=True, slots=True)
class Conformance:
    """What the suite found."""

    backend: str
    checked: list[str] = field(default_factory=list)
    """Arms and the layers or drafts that they ran."""

    left_out: list[str] = field(default_factory=list)
    """Layers and drafts that the backend refused or declined, with reasons."""

    failures: list[str] = field(default_factory=list)
    """Each says where, and what is wrong."""

    raised: list[Exception] = field(default_factory=list)
    """The first exception of the backend's, with its traceback, if there was one."""

    def __str__(self) -> str:
        """All failures, or how much was checked, then what was left out."""
        if self.failures:
            said = [f"{self.backend} does not keep the contract:"]
            said += [f"- {failure}" for failure in self.failures]
        else:
            said = [f"{self.backend} keeps the contract in {len(self.checked)} checks"]
        if self.left_out:
            said += ["left out:", *(f"- {reason}" for reason in self.left_out)]
        return "\n".join(said)


def check_backend(
    backend: BackendSpec | str,
    *,
    device: str = "cpu",
    specs: Sequence[LayerSpec] | None = None,
) -> Conformance:
    """Hold `backend` against the contract; for the tests of its author.

    Checked are its declaration, its entry point, and on every layer: that `plan`
    decides on the host alone and always alike; that each region writes what its
    signature says and nothing else; outputs, new KV rows and experts over several
    replays; that equal replays are equal bit for bit, also over the values of switches
    that say so or are idle, and with stamps; and the tokens of its draft.

    Args:
        backend: its name, found as ``layerscope profile`` finds it, or the spec itself.
        device: ``cpu``, ``cuda`` or ``auto``.
        specs: the layers; None for small ones of every family that it covers, and on a
            GPU for a real model's of each family whose small ones it all refused.

    Returns:
        What was checked and what the backend refused.

    Raises:
        AssertionError: lists all that is wrong; its cause is the first exception that
            the backend raised, if any. Nothing that could be checked is wrong too: a
            backend that refuses every layer has shown nothing.
        BackendError: it cannot be loaded.
        InputError: there is no such backend or device.
    """
    is_named = isinstance(backend, str)
    spec = registry.load(backend) if isinstance(backend, str) else backend
    target = resolve(device)
    found = Conformance(str(spec.name), failures=faults(spec))
    if found.failures:
        raise AssertionError(str(found))
    layers = tiny_specs(spec) if specs is None else list(specs)
    suite = _Suite(spec, target, found)
    with torch.no_grad():
        found.failures.extend(declaration.declared(spec))
        suite.ask(layers)
        found.failures.extend(declaration.entry_point(spec, is_named=is_named))
        if len(found.failures) == len(found.raised):  # reasons say which layers remain
            with_real = specs is None and target.type != "cpu"
            suite.run(layers, with_real=with_real)
    if found.failures:
        raise AssertionError(str(found)) from next(iter(found.raised), None)
    return found


class _Suite:
    """Runs one backend on layers and drafts, and adds to what was found."""

    def __init__(
        self, backend: BackendSpec, device: torch.device, found: Conformance
    ) -> None:
        self._backend = backend
        self._device = device
        self._found = found

    def ask(self, layers: Sequence[LayerSpec]) -> None:
        """Check how the backend gives its reasons against `layers`."""
        here = facts(self._device)
        for spec in layers:
            is_right = False
            with self._noting(label(spec)):
                wrong = list(declaration.refusals(self._backend, [spec], here))
                self._found.failures.extend(wrong)
                if not wrong:
                    wrong = list(declaration.left_undone(self._backend, spec, here))
                    self._fail(label(spec), wrong)
                is_right = not wrong
            if not is_right:
                return

    def run(self, layers: Sequence[LayerSpec], *, with_real: bool) -> None:
        """Check `layers`, and that of every family one ran.

        Args:
            layers: what the backend is asked to run.
            with_real: let real sizes stand in where all layers of a family are refused.
        """
        missing = {spec.model.family for spec in layers} - self._check(layers)
        if with_real:
            real = real_specs(missing)
            self.ask(real)
            missing -= self._check(real)
        if missing or not layers:
            names = ", ".join(sorted(missing)) or "any family"
            self._found.failures.append(f"it ran no layer of {names}")

    def _check(self, layers: Sequence[LayerSpec]) -> set[Family]:
        """Check all that is not refused; the families that ran.

        Switches are turned on the first layer of each family and types.
        """
        backend, here = self._backend, facts(self._device)
        default, *turned = _arms(backend)
        ran, kinds = set(), set()
        for spec in layers:
            reasons = registry.reasons(backend, default, spec, here)
            reasons += _hazards(backend)
            if reasons:
                self._leave_out(label(spec), "; ".join(reasons))
                continue
            kind = (spec.model.family, spec.dtype, spec.weight_dtype)
            arms = (default,) if kind in kinds else (default, *turned)
            with self._noting(label(spec)):
                if not self._leaves_all(spec) and self._check_layer(spec, arms):
                    ran.add(spec.model.family)
                    kinds.add(kind)
                self._check_draft(spec, arms)
        return ran

    def _leaves_all(self, spec: LayerSpec) -> bool:
        """Whether nothing of the layer can be checked: all of it runs elsewhere."""
        why = coverage.why_all_left(self._backend, spec)
        if why:
            self._leave_out(label(spec), f"declines all regions: {'; '.join(why)}")
        return bool(why)

    def _leave_out(self, what: str, why: str) -> None:
        self._found.left_out.append(f"{what}: {why}")

    def _fail(self, where: str, failures: Sequence[str]) -> None:
        self._found.failures.extend(f"{where}: {failure}" for failure in failures)

    @contextmanager
    def _noting(self, where: str) -> Iterator[None]:
        """Make a failure of what the block raises, and go on after it."""
        try:
            yield
        except BackendRaisedError as raised:
            what, error = str(raised), raised.error
        except Exception as raised:  # noqa: BLE001 (a kernel may fail in any call)
            what, error = f"raised {describe(raised)}", raised
        else:
            return
        self._fail(where, [what])
        if not self._found.raised:
            self._found.raised.append(error)

    def _check_layer(self, spec: LayerSpec, arms: Sequence[Arm]) -> bool:
        """Whether the backend ran the layer."""
        options = ProblemOptions(passes=_PASSES, steps=_STEPS, device=str(self._device))
        problem = make_problem(spec, options)
        default, *turned = arms
        can_run = self._plan(default, problem, label(spec))
        if can_run is None:
            return False
        if can_run:
            where = f"on {label(spec)}"
            planned = [
                arm for arm in turned if self._plan(arm, problem, f"{arm.name} {where}")
            ]
            self._check_arms(problem, [default, *planned])
        return True

    def _plan(self, arm: Arm, problem: Problem, where: str) -> bool | None:
        """Whether all is right before `arm` runs; None where it declines."""
        can_run: bool | None = False
        with self._noting(where):
            failures = build_and_plan(self._backend, arm, problem)
            if failures is None:
                can_run = None
                self._leave_out(where, "its plan declined")
            else:
                can_run = not failures
                self._fail(where, failures)
        return can_run

    def _check_arms(self, problem: Problem, arms: Sequence[Arm]) -> None:
        """Check the arms one by one, and those against the first that must equal it."""
        bitwise = {switch.name for switch in self._backend.switches if switch.bitwise}
        here = facts(self._device)
        bitwise.update(coverage.idle_switches(self._backend, problem.spec, here))
        default: tuple[torch.Tensor, ...] = ()
        for arm in arms:
            where = f"{arm.name} on {label(problem.spec)}"
            self._found.checked.append(where)
            with self._noting(where):
                failures, outputs = self._results(problem, arm)
                if arm is arms[0]:
                    default = outputs
                is_alike = all(map(is_same, default, outputs))
                if not failures and not is_alike and bitwise.issuperset(arm.switches):
                    failures = ["its results are not bit for bit those at the default"]
                self._fail(where, failures)

    def _results(
        self, problem: Problem, arm: Arm
    ) -> tuple[list[str], tuple[torch.Tensor, ...]]:
        """What is wrong with the passes of `arm`, and what they compute."""
        with ArmUnderTest(self._backend, arm, problem) as under_test:
            failures = list(footprint(under_test))
            failures = failures or list(values(under_test, self._backend.numerics))
            outputs = under_test.replay(0)
            if arm.stamps and not failures:
                failures = list(stamps(under_test))
            return failures, outputs

    def _check_draft(self, spec: LayerSpec, arms: Sequence[Arm]) -> None:
        asked = draft_of(spec)
        if asked is None or self._backend.build_draft is None:
            return
        with self._noting(f"draft after {label(spec)}"):
            wrong = list(declaration.idle(self._backend, asked, facts(self._device)))
            self._fail(f"draft after {label(spec)}", wrong)
        for arm in (arm for arm in arms if not arm.stamps):
            where = f"draft of {arm.name} after {label(spec)}"
            with self._noting(where):
                failures = draft(self._backend, arm, asked, self._device)
                if failures is None:
                    self._leave_out(where, "its plan declined")
                    continue
                self._found.checked.append(where)
                self._fail(where, failures)


def _hazards(backend: BackendSpec) -> list[str]:
    """Why layers must not run in this process."""
    if not backend.waits:
        return []
    kernels = f"kernels that wait for others ({', '.join(backend.waits)})"
    where = "a process that can be ended: layerscope profile does so"
    return [f"has {kernels}, which must first run in {where}"]


def _arms(backend: BackendSpec) -> Iterator[Arm]:
    """At its default switches, with each value of each of them, and with stamps."""
    yield Arm(backend=backend.name)
    for switch in backend.switches:
        for value in switch.values[1:]:
            yield Arm(backend=backend.name, switches={switch.name: value})
    if backend.stamps:
        yield Arm(backend=backend.name, stamps=True)
