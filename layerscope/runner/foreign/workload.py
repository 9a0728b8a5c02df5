"""Callables of the user's own as a workload: one call a pass, results compared."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import BackendError
from layerscope.graphs.edits import Allowed
from layerscope.layers.feed import Feed
from layerscope.regions import Region, is_observed, region
from layerscope.run_header import RegionBytes
from layerscope.runner.foreign.arguments import Arguments
from layerscope.runner.foreign.inputs import Inputs
from layerscope.runner.foreign.module_regions import marking
from layerscope.runner.foreign.results import (
    Outcome,
    address_of,
    differences,
    refuse_other_kinds,
    spoil,
    tensors_in,
)
from layerscope.study import AA_SUFFIX, L2_FACTOR


@dataclass(frozen=True, slots=True)
class ForeignArm:
    """Callables that take turns, one a pass."""

    name: str
    functions: tuple[Callable[..., Any], ...]
    roots: tuple[nn.Module | None, ...]
    """The module of each, if it can be told."""

    modules: tuple[dict[str, list[nn.Module]], ...]
    """The submodules of each that are regions."""

    def call(self, arguments: Arguments, index: int) -> object:
        """Make the call of pass `index`; what it returns."""
        turn = index % len(self.functions)
        modules = self.modules[turn]
        hooks = marking(modules) if modules and is_observed() else nullcontext()
        with hooks, _Blame(self.name):
            return self.functions[turn](*arguments.positional, **arguments.keyword)

    def weight_bytes(self, passes: int) -> int | None:
        """Bytes of all parameters and buffers that `passes` passes read, if known.

        A method may read only some of its module's.
        """
        modules = [one for one in self.functions[:passes] if isinstance(one, nn.Module)]
        if len(modules) < len(self.functions[:passes]):
            return None
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for module in modules
            for tensor in (*module.parameters(), *module.buffers())
        }
        return sum(storages.values())


class _Blame:
    """Names the arm beside the traceback of an error in its code."""

    def __init__(self, arm: str) -> None:
        self._arm = arm

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"raised in a call of arm {self._arm!r}")


def wait_for(device: torch.device) -> None:
    """Wait for all that was enqueued: the stream of the replays does not."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_played(device: torch.device) -> bool:
    """Whether what is called now is what replays run.

    On a GPU a body also runs uncaptured, to be warm; its results are not a replay's.
    """
    return device.type == "cpu" or torch.cuda.is_current_stream_capturing()


@dataclass(slots=True)
class ForeignWorkload:
    """Foreign arms on the same inputs; see `Workload`."""

    inputs: Inputs
    arms: dict[str, ForeignArm]
    tolerance: float
    kept: frozenset[int] = frozenset()
    """Addresses of memory that arms return and also read: never to be spoilt."""

    skippable: tuple[str, ...] = ()
    """Regions that the user says may be left out."""

    _results: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict)
    """Of the last pass of a replay, by arm and passes: static memory under a graph."""

    _arguments: Arguments = field(init=False)
    """What the calls of the present replay get."""

    def __post_init__(self) -> None:
        """Begin with the arguments as they were given."""
        self._arguments = self.inputs.live

    @property
    def feed(self) -> Feed:
        """The inputs of every step."""
        return self.inputs.feed

    @property
    def base(self) -> ForeignArm:
        """The arm that all are compared with."""
        return next(iter(self.arms.values()))

    def run_pass(self, arm: str, index: int, passes: int) -> None:
        """Call the arm once; what it does outside regions of its own is ``other``."""
        if index == 0:
            self._arguments = self.inputs.layout.nested_anew(self.inputs.live)
        with region(Region.OTHER):
            returned = self._arm(arm).call(self._arguments, index)
        # Memory of earlier passes is used again by later ones.
        if index == passes - 1 and is_played(self.feed.device):
            self._results[arm, passes] = tensors_in(returned)

    def poison(self) -> None:
        """Spoil the results of captured replays, which these must write anew.

        Arguments among them are loaded again at the head of a replay, or never written.

        Raises:
            BackendError: an argument was written that should never be.
        """
        self._refuse_changed("an arm", "between two checks")
        live = self.inputs.live.memory
        spared = {address_of(live[span]) for span in self.inputs.fixed} | self.kept
        for results in self._results.values():
            for tensor in results:
                if address_of(tensor) not in spared:
                    spoil(tensor)
        wait_for(self.feed.device)

    def checked(self, passes: int) -> list[int]:
        """The last pass."""
        return [passes - 1]

    def error(self, arm: str, index: int, passes: int) -> float:  # noqa: ARG002
        """The largest error of a result or a changed argument, against the first arm.

        That one is called as often, on a copy of what the replay began with.

        Raises:
            BackendError: there are other results than the first arm's, or an argument
                was written that should never be.
        """
        step = int(self.feed.step)
        self._refuse_changed(arm, f"in a replay of step {step}")
        # Copied before the base is called: an arm may share memory with it.
        returned = [tensor.clone() for tensor in self._results[arm, passes]]
        got = Outcome(returned, self.inputs.live.tensors)
        wanted = self._wanted(step, passes)
        refuse_other_kinds(arm, got, self.base.name, wanted)
        names = self.inputs.layout.names
        found = differences(got, wanted, self.inputs.before(step), names)
        return max((difference.error for difference in found), default=0.0)

    def _wanted(self, step: int, passes: int) -> Outcome:
        """What the base gives in the last of so many calls on the same arguments."""
        arguments = self.inputs.fresh(step)
        returned: object = None
        # Calls that change nothing do not matter to those after them.
        is_changing = self.inputs.written or self.inputs.layout.is_nested
        for index in range(0 if is_changing else passes - 1, passes):
            returned = self.base.call(arguments, index)
        return Outcome(tensors_in(returned), arguments.tensors)

    def _refuse_changed(self, arm: str, when: str) -> None:
        changed = self.inputs.changed()
        if changed:
            msg = (
                f"{arm} changed {', '.join(changed)} {when} but in no first call, so "
                "later replays would begin with it; let it change at the first step too"
            )
            raise BackendError(msg)

    def outputs(self, arm: str, passes: int) -> list[Tensor]:
        """What the last call returned, and the arguments that calls may change."""
        live = self.inputs.live.tensors
        return [*self._results[arm, passes], *(live if self.inputs.written else ())]

    def allowed(self, arm: str) -> Allowed:  # noqa: ARG002
        """Nothing is known of foreign kernels; all regions that are told stay whole."""
        return Allowed(skippable=self.skippable)

    def abort(self, arm: str) -> None:
        """None: foreign code was given nothing to set."""

    @property
    def error_name(self) -> str:
        """What `error` measures."""
        return f"relative error against {self.base.name}"

    def bound(self, arm: str) -> float:  # noqa: ARG002
        """The tolerance, the same for all."""
        return self.tolerance

    def required_bytes(self, step: int, passes: int) -> None:
        """Not known of foreign code."""

    def region_bytes(self) -> Iterator[RegionBytes]:
        """Not known of foreign code."""
        return iter(())

    def cache_warnings(self, passes: int, l2_bytes: int) -> Iterator[str]:
        """A warning for every arm whose weights the L2 cache could hold."""
        if not l2_bytes:
            return
        limit, size = L2_FACTOR * l2_bytes, f"{l2_bytes / 1e6:.0f} MB"
        for name, arm in self.arms.items():
            weights = arm.weight_bytes(passes)
            if weights is None:
                yield (
                    f"what {name} reads is not known: if a replay of {passes} calls "
                    f"reads less than {L2_FACTOR} times the L2 cache of {size}, its "
                    "times are of a warm cache"
                )
            elif weights < limit:
                yield (
                    f"the modules of {name} hold {weights / 1e6:.0f} MB, less than "
                    f"{L2_FACTOR} times the L2 cache of {size}: weights may be read "
                    "from it; give a list of modules, one a pass"
                )

    def _arm(self, arm: str) -> ForeignArm:
        return self.arms[arm.removesuffix(AA_SUFFIX)]
