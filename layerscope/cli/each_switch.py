"""Arms and experiments that tell the switches of backends apart: ``--each-switch``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from layerscope import registry
from layerscope.arm_switches import switch_values
from layerscope.environment import DeviceFacts
from layerscope.errors import InputError
from layerscope.experiment import SERIAL, Experiment
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.run_header import IdleSwitch
from layerscope.runner.idle import idle_switches
from layerscope.study import Arm, Study, SwitchStudy
from layerscope.switches import Switch, SwitchArms, SwitchKind, TakenApart

DOSES_NS: Final = (0, 2_000, 5_000, 10_000)
"""How long a kernel spins before one that starts early; 0 is what it costs itself."""


def with_each_switch(study: Study, device: DeviceFacts) -> Study:
    """`study` with arms between which each switch of its backends is turned.

    Every backend that has switches gets an arm with all of them off and one with all
    on, and for each switch one with it alone and one with all others. What is one of
    the study's arms already is not added. Each arm is a build of its own, whose memory
    lies elsewhere, so the one with all off is built once more, which tells what that is
    worth. Where graphs are edited, arms of switches that only move work have serial
    twins, and those of switches that let kernels start early are delayed.

    A switch that is idle, which changes nothing for what is measured, has no arms; it
    stays as it is in those of the others. The draft has arms of its own: what is idle
    there may not be in the layer. An arm that is refused is not asked what is idle: the
    study says why it is, as without its switches told apart.

    Args:
        study: of a layer.
        device: where it is measured.

    Raises:
        InputError: no arm has switches, or none of them changes anything.
        BackendError: a backend cannot be loaded, or cannot tell what is idle.
        TypeError: the study is not one of a layer.
    """
    if not isinstance(study.spec, LayerSpec):
        msg = f"a study of {type(study.spec).__name__} has no switches"
        raise TypeError(msg)
    backends = [registry.load(name) for name in _names(study)]
    switched = [one for one in backends if any(map(_can_turn, one.switches))]
    if not switched:
        msg = (
            f"--each-switch: no arm has switches ({', '.join(_names(study))}); name "
            "one that has some: layerscope backends lists them"
        )
        raise InputError(msg)
    fitting = _fitting(study, study.spec, device)
    idle = idle_switches(fitting, study.spec, device)
    layer = _switch_study(study, study.spec, switched, idle)
    draft = _of_draft(study, switched, fitting, device)
    _refuse_idle(layer, draft)
    return msgspec.structs.replace(
        study,
        taken_apart=layer.taken_apart,
        switch_arms=layer.arms,
        switch_experiments=layer.experiments,
        draft_switches=draft,
    )


def _names(study: Study) -> list[str]:
    return list(dict.fromkeys(arm.backend for arm in study.arms))


def _fitting(study: Study, spec: LayerSpec, device: DeviceFacts) -> list[Arm]:
    """The arms of `study`, which is of `spec`, that are not refused."""
    return [
        arm
        for arm in study.arms
        if not registry.reasons(
            registry.load(arm.backend), arm, spec, device, study.draft
        )
    ]


def _can_turn(switch: Switch) -> bool:
    return bool(switch.on_value)


def _switch_study(
    study: Study,
    spec: LayerSpec | DraftSpec,
    backends: Iterable[BackendSpec],
    told: Iterable[IdleSwitch],
) -> SwitchStudy:
    """How switches of `backends`, but for idle ones, are told apart on `spec`."""
    idle: dict[str, dict[str, str]] = {}
    for one in told:
        idle.setdefault(one.backend, {})[one.switch] = one.reason
    arms = _Arms(study.arms)
    apart = tuple(
        _taken_apart(backend, arms, idle.get(backend.name, {})) for backend in backends
    )
    if isinstance(spec, DraftSpec):
        apart = tuple(map(_undelayed, apart))
    return SwitchStudy(
        taken_apart=apart,
        arms=tuple(arms.added),
        experiments=_experiments(apart) if study.experiments else {},
    )


def _of_draft(
    study: Study,
    backends: Iterable[BackendSpec],
    fitting: Iterable[Arm],
    device: DeviceFacts,
) -> SwitchStudy | None:
    """The same of the study's draft; None where nobody drafts."""
    drafting = {one.name: one for one in backends if one.build_draft is not None}
    if study.draft is None or not drafting:
        return None
    asked = (arm for arm in fitting if arm.backend in drafting)
    idle = idle_switches(asked, study.draft, device)
    return _switch_study(study, study.draft, drafting.values(), idle)


def _undelayed(apart: TakenApart) -> TakenApart:
    """Without dose tests: delays name roles of the layer's kernels."""
    switches = [msgspec.structs.replace(one, delayed="") for one in apart.switches]
    return msgspec.structs.replace(apart, switches=tuple(switches))


def _refuse_idle(layer: SwitchStudy, draft: SwitchStudy | None) -> None:
    studies = [layer] if draft is None else [layer, draft]
    if any(apart.on for one in studies for apart in one.taken_apart):
        return
    told = dict.fromkeys(
        f"{apart.backend}: {switch.name} changes nothing here: {switch.idle}"
        for apart in layer.taken_apart
        for switch in apart.switches
    )
    msg = f"--each-switch: there is nothing to tell apart; {'; '.join(told)}"
    raise InputError(msg)


class _Arms:
    """The arms of a study, by what their switches are, and those that are added."""

    def __init__(self, given: Iterable[Arm]) -> None:
        self._given = tuple(given)
        self.added: list[Arm] = []

    def named(self, backend: BackendSpec, values: Mapping[str, str], what: str) -> str:
        """The name of the arm whose switches have `values`; added where there is none.

        Args:
            backend: of the arm.
            values: of all its switches.
            what: the arm is called where more than one switch is not at its default.
        """
        for arm in (*self._given, *self.added):
            same_backend = arm.backend == backend.name
            if same_backend and switch_values(arm, backend) == values:
                return arm.name
        turned = {
            switch.name: values[switch.name]
            for switch in backend.switches
            if values[switch.name] != switch.values[0]
        }
        label = f"{backend.name} {what}" if len(turned) > 1 else ""
        self.added.append(Arm(backend=backend.name, switches=turned, label=label))
        return self.added[-1].name

    def rebuilt(self, name: str) -> str:
        """The name of an arm like the one called `name`, which is built once more."""
        like = next(arm for arm in (*self._given, *self.added) if arm.name == name)
        self.added.append(
            Arm(
                backend=like.backend,
                switches=like.switches,
                label=f"{like.name} (built again)",
            )
        )
        return self.added[-1].name


def _taken_apart(
    backend: BackendSpec, arms: _Arms, idle: Mapping[str, str]
) -> TakenApart:
    """The arms of `backend`, of whose switches some are `idle`, with reasons."""
    turnable = [switch for switch in backend.switches if _can_turn(switch)]
    turned = [switch for switch in turnable if switch.name not in idle]
    if not turned:
        rows = tuple(_switch_arms(each, idle=idle[each.name]) for each in turnable)
        return TakenApart(backend=backend.name, off="", on="", switches=rows)
    fixed = {switch.name: switch.values[0] for switch in backend.switches}
    off = fixed | {switch.name: switch.off_value for switch in turned}
    on = fixed | {switch.name: switch.on_value for switch in turned}
    all_off = arms.named(backend, off, "all off")
    all_on = arms.named(backend, on, "all on")

    def row(switch: Switch) -> SwitchArms:
        name = switch.name
        if name in idle:
            return _switch_arms(switch, idle=idle[name])
        only = off | {name: switch.on_value}
        without = on | {name: switch.off_value}
        return _switch_arms(
            switch,
            only=arms.named(backend, only, f"only {name}"),
            without=arms.named(backend, without, f"without {name}"),
            delayed=f"/{switch.starts_early[0]}" if switch.starts_early else "",
        )

    return TakenApart(
        backend=backend.name,
        off=all_off,
        on=all_on,
        switches=tuple(map(row, turnable)),
        rebuilt=arms.rebuilt(all_off),
    )


def _switch_arms(switch: Switch, **told: str) -> SwitchArms:
    return SwitchArms(
        name=switch.name,
        toggles=switch.toggles,
        kind=switch.kind,
        bitwise=switch.bitwise,
        **told,
    )


def _experiments(apart: Iterable[TakenApart]) -> dict[str, tuple[Experiment, ...]]:
    """What is asked of single arms, by name."""
    asked: dict[str, dict[Experiment, None]] = {}
    for backend in apart:
        for switch in backend.switches:
            if switch.idle:
                continue
            for arm, experiment in _of_switch(backend, switch):
                asked.setdefault(arm, {})[experiment] = None
    return {arm: tuple(experiments) for arm, experiments in asked.items()}


def _of_switch(
    backend: TakenApart, switch: SwitchArms
) -> Iterator[tuple[str, Experiment]]:
    if switch.kind == SwitchKind.OVERLAP:
        for arm in (backend.off, switch.only, switch.without, backend.on):
            yield arm, SERIAL
    if switch.delayed:
        for delay_ns in DOSES_NS:
            for arm in (switch.without, backend.on):
                yield arm, Experiment(delay=switch.delayed, delay_ns=delay_ns)
