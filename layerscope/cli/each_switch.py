"""Arms and experiments that tell the switches of backends apart: ``--each-switch``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from layerscope import registry
from layerscope.errors import InputError
from layerscope.experiment import SERIAL, Experiment
from layerscope.plugin import BackendSpec
from layerscope.study import Arm, Study
from layerscope.switches import Switch, SwitchArms, SwitchKind, TakenApart

DOSES_NS: Final = (0, 2_000, 5_000, 10_000)
"""How long a kernel spins before one that starts early; 0 is what it costs itself."""


def with_each_switch(study: Study) -> Study:
    """`study` with arms between which each switch of its backends is turned.

    Every backend that has switches gets an arm with all of them off and one with all
    on, and for each switch one with it alone and one with all others. What is one of
    the study's arms already is not added. Each arm is a build of its own, whose memory
    lies elsewhere, so the one with all off is built once more, which tells what that is
    worth. Where graphs are edited, arms of switches that only move work have serial
    twins, and those of switches that let kernels start early are delayed.

    Raises:
        InputError: no arm has switches; lists those asked.
        BackendError: a backend cannot be loaded.
    """
    names = dict.fromkeys(arm.backend for arm in study.arms)
    arms = _Arms(study.arms)
    apart = tuple(
        _taken_apart(backend, arms)
        for backend in map(registry.load, names)
        if any(map(_can_turn, backend.switches))
    )
    if not apart:
        msg = (
            f"--each-switch: no arm has switches ({', '.join(names)}); name one that "
            "has some: layerscope backends lists them"
        )
        raise InputError(msg)
    return msgspec.structs.replace(
        study,
        taken_apart=apart,
        switch_arms=tuple(arms.added),
        switch_experiments=_experiments(apart) if study.experiments else {},
    )


def _can_turn(switch: Switch) -> bool:
    return bool(switch.on_value)


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
            if same_backend and registry.switch_values(arm, backend) == values:
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
                label=f"{like.name}, built again",
            )
        )
        return self.added[-1].name


def _taken_apart(backend: BackendSpec, arms: _Arms) -> TakenApart:
    turned = [switch for switch in backend.switches if _can_turn(switch)]
    fixed = {switch.name: switch.values[0] for switch in backend.switches}
    off = fixed | {switch.name: switch.off_value for switch in turned}
    on = fixed | {switch.name: switch.on_value for switch in turned}
    all_off = arms.named(backend, off, "all off")
    all_on = arms.named(backend, on, "all on")
    return TakenApart(
        backend=backend.name,
        off=all_off,
        on=all_on,
        switches=tuple(
            SwitchArms(
                name=each.name,
                only=arms.named(
                    backend, off | {each.name: each.on_value}, f"only {each.name}"
                ),
                without=arms.named(
                    backend, on | {each.name: each.off_value}, f"without {each.name}"
                ),
                toggles=each.toggles,
                kind=each.kind,
                bitwise=each.bitwise,
                delayed=f"/{each.starts_early[0]}" if each.starts_early else "",
            )
            for each in turned
        ),
        rebuilt=arms.rebuilt(all_off),
    )


def _experiments(apart: Iterable[TakenApart]) -> dict[str, tuple[Experiment, ...]]:
    """What is asked of single arms, by name."""
    asked: dict[str, dict[Experiment, None]] = {}
    for backend in apart:
        for switch in backend.switches:
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
