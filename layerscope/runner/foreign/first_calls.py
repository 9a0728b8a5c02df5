"""The first calls of foreign arms, uncaptured: what they do, and if it is right."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import torch
from torch import Tensor

from layerscope.errors import BackendError, InputError
from layerscope.progress import Progress
from layerscope.regions import Mark, observing
from layerscope.runner.foreign.inputs import Drawn
from layerscope.runner.foreign.results import (
    Difference,
    Outcome,
    address_of,
    differences,
    has_nan,
    is_changed,
    refuse_other_kinds,
    restore,
    saved,
    spoil,
    tensors_in,
)
from layerscope.runner.foreign.workload import ForeignArm

_TOLERANCES: Final = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,  # may be computed in TF32 at will: then say so
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 5e-2,
    torch.float8_e5m2: 1e-1,
}
"""Of complex numbers, those of their parts."""

_Outcomes: TypeAlias = dict[int, Outcome]
"""Of one call, by step."""


@dataclass(slots=True)
class FirstCalls:
    """What the first calls of all arms have shown."""

    arms: Mapping[str, ForeignArm]
    drawn: Drawn
    device: torch.device
    tolerance: float | None = None
    """Largest error taken as equal; set by `run` where it is not given."""

    written: set[int] = field(default_factory=set)
    """Spans of the arguments that some arm changes."""

    kept: set[int] = field(default_factory=set)
    """Addresses of memory that an arm returns every time and also reads."""

    opened: set[tuple[str, str]] = field(default_factory=set)
    """(arm, region) of all marks."""

    def run(self, progress: Progress) -> float:
        """Make every call of every arm twice, and once at another step if there is one.

        What a step leaves as it was by chance, another will not.

        Returns:
            The tolerance.

        Raises:
            InputError: nothing can be compared, or results are on another device.
            BackendError: an arm computes something else than the first one, or than
                the time before.
        """
        base, *others = self.arms.values()
        turns = max(len(arm.functions) for arm in self.arms.values())
        progress.phase("comparing arms", turns * len(self.arms))
        for index in range(turns):
            wanted = self._calls(base, index, None)
            progress.advance()
            for arm in others:
                self._calls(arm, index, wanted)
                progress.advance()
        return self.tolerance or 0.0

    def warnings(self, regions: AbstractSet[str]) -> Iterator[str]:
        """A warning for every arm that ran nothing in a region which is asked for."""
        for name in self.arms:
            for region in sorted(regions):
                if (name, region) not in self.opened:
                    yield (
                        f"{name} ran nothing in region {region}: no module of it that "
                        "is called matches, and its code does not mark it"
                    )

    def _calls(
        self, arm: ForeignArm, index: int, wanted: _Outcomes | None
    ) -> _Outcomes:
        """What the call gives by step, which is compared with what is `wanted`."""
        first = self._call(arm, index)
        got = {0: Outcome(_copies(first.returned), first.arguments)}
        for step in self.drawn.tried[1:]:
            other = self._call(arm, index, step)
            got[step] = Outcome(_copies(other.returned), other.arguments)
        if wanted is None:
            self._accept(arm, index, got)
        else:
            self._compare(arm, index, got, wanted)
        second = self._call(arm, index)
        self._repeat(arm, index, second, got[0])
        for before, tensor in zip(first.returned, second.returned, strict=True):
            # The first is still alive, so one address is memory that the arm holds.
            if address_of(before) == address_of(tensor):
                self._try_to_spoil(arm, index, tensor, got[0])
        return got

    def _call(self, arm: ForeignArm, index: int, step: int = 0) -> Outcome:
        arguments = self.drawn.fresh(step)
        with observing(_Opened(arm.name, self.opened)):
            returned = tensors_in(arm.call(arguments, index))
        for tensor in returned:
            if tensor.device != self.device:
                msg = (
                    f"{arm.name} gives results on {tensor.device}, and {self.device} "
                    "is measured, where the inputs are; move them"
                )
                raise InputError(msg)
        written = self.drawn.written(arguments, step)
        self.written |= written
        return Outcome(returned, self.drawn.left(arguments, written, step))

    def _accept(self, base: ForeignArm, index: int, got: _Outcomes) -> None:
        """Take the results of the first arm as what is right, if they can be."""
        results = [tensor for outcome in got.values() for tensor in outcome.returned]
        changed = [tensor for step in got for tensor in self._changed(got[step], step)]
        if not (results or changed):
            msg = (
                f"{base.name} returns no tensor and changes no argument, so nothing "
                "can be compared; return what it computes"
            )
            raise InputError(msg)
        for tensor in results:
            if has_nan(tensor):
                msg = (
                    f"{base.name} gives NaN in call {index}, so nothing can be "
                    "compared with it; check weights and inputs"
                )
                raise BackendError(msg)
        if self.tolerance is None:
            types = {tensor.dtype.to_real() for tensor in (*results, *changed)}
            self.tolerance = max(_TOLERANCES.get(dtype, 0.0) for dtype in types)

    def _changed(self, got: Outcome, step: int) -> list[Tensor]:
        pairs = zip(got.arguments, self.drawn.before(step), strict=True)
        return [now for now, was in pairs if is_changed(now, was)]

    def _compare(
        self, arm: ForeignArm, index: int, got: _Outcomes, wanted: _Outcomes
    ) -> None:
        base = next(iter(self.arms))
        for step, want in wanted.items():
            refuse_other_kinds(arm.name, got[step], base, want)
            worst = self._worst(got[step], want, step)
            if worst is not None:
                of_step = f" at step {step}" if step else ""
                msg = (
                    f"{arm.name} is wrong: {worst} of call {index}{of_step} against "
                    f"{base}, where {self.tolerance:.2g} is tolerated; it was not timed"
                )
                raise BackendError(msg)

    def _repeat(
        self, arm: ForeignArm, index: int, again: Outcome, got: Outcome
    ) -> None:
        refuse_other_kinds(f"{arm.name}, called again,", again, "at first", got)
        worst = self._worst(again, got)
        if worst is not None:
            msg = (
                f"{arm.name} is not repeatable: {worst} of call {index} when it is "
                "called again on the same inputs; what it keeps between calls must be "
                "among them"
            )
            raise BackendError(msg)

    def _worst(self, got: Outcome, want: Outcome, step: int = 0) -> Difference | None:
        """The largest difference that is not tolerated."""
        before, names = self.drawn.before(step), self.drawn.layout.names
        found = list(differences(got, want, before, names))
        worst = max(found, key=lambda difference: difference.error, default=None)
        is_right = worst is None or worst.error <= (self.tolerance or 0.0)
        return None if is_right else worst

    def _try_to_spoil(
        self, arm: ForeignArm, index: int, tensor: Tensor, got: Outcome
    ) -> None:
        """Find out whether memory that an arm holds is only written by it.

        If so, it can be spoilt before a replay, to see whether it is written again.
        """
        before = saved(tensor)
        spoil(tensor)
        try:
            is_read = self._worst(self._call(arm, index), got) is not None
        finally:  # it may be a weight of the user's
            restore(tensor, before)
        if is_read:
            self.kept.add(address_of(tensor))


@dataclass(frozen=True, slots=True)
class _Opened:
    """Notes the regions that an arm opens."""

    arm: str
    found: set[tuple[str, str]]

    def opened(self, mark: Mark) -> None:
        if mark.kind == "region":
            self.found.add((self.arm, mark.name))

    def closed(self, mark: Mark) -> None:
        pass


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies, for an arm may write its results to the same memory every time."""
    return [tensor.detach().clone() for tensor in tensors]
