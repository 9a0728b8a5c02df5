"""The layer as a workload: every arm runs the same problem, region by region."""

from collections.abc import Iterator, Mapping
from math import inf

import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.graphs.edits import Allowed
from layerscope.layers.families import required_bytes
from layerscope.layers.feed import Feed
from layerscope.layers.problem import Problem, new_slots, poison
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.routing import distinct_experts, is_planned
from layerscope.layers.spec import DType
from layerscope.regions import Region, region
from layerscope.registry import FALLBACK, Dispatched
from layerscope.registry import load as load_backend
from layerscope.run_header import RegionBytes
from layerscope.study import AA_SUFFIX, L2_FACTOR


class LayerWorkload:
    """One layer's problem and the arms that were built for it; see `Workload`."""

    def __init__(self, problem: Problem, arms: dict[str, Dispatched]) -> None:
        """Take `arms` by name; an A/A arm that is not there is the arm it repeats."""
        self._problem = problem
        self._arms = arms
        self._required = _required_sums(problem)

    @property
    def feed(self) -> Feed:
        """The inputs and routing of every step."""
        return self._problem.feed

    @property
    def distinct_experts(self) -> list[list[int]]:
        """Distinct experts over all rows, [steps][passes]; empty if dense."""
        return _distinct(self._problem)

    def run_pass(self, arm: str, index: int, passes: int) -> None:  # noqa: ARG002
        """Enqueue the regions of pass `index` in order."""
        dispatched = self._dispatched(arm)
        if dispatched.whole is not None:
            with region(Region.OTHER):
                dispatched.whole.run_layer(index)
            return
        for name in self._problem.spec.regions:
            with region(name):
                dispatched.steps[name].run(name, index)

    def poison(self) -> None:
        """Write NaN to buffers and new KV rows."""
        poison(self._problem)

    def checked(self, passes: int) -> list[int]:
        """The first, the middle and the last pass."""
        last = passes - 1
        return sorted({0, last // 2, last})

    def error(self, arm: str, index: int, passes: int) -> float:  # noqa: ARG002
        """``|out - ref| / |ref|`` of one pass, both from the arm's own input.

        Raises:
            BackendError: the arm chose other experts than the plan, or left rows of
                the KV cache unwritten.
        """
        spec, out = self._problem.spec, self._problem.buffers[index].out
        is_fp32 = spec.dtype is DType.FLOAT32
        precision = torch.float64 if is_fp32 else torch.float32
        reference = reference_output(self._problem, index, precision)
        error = relative_error(out, reference)
        if error == inf:  # NaN that came in says nothing about what the pass made of it
            return inf
        self._check_experts(arm, index)
        self._check_cache(arm, index)
        return error

    def outputs(self, arm: str, passes: int) -> list[Tensor]:  # noqa: ARG002
        """The layer's output of every pass."""
        return [buffers.out for buffers in self._problem.buffers[:passes]]

    def allowed(self, arm: str) -> Allowed:
        """What the arm's backend says of its kernels, and the fallback of its own."""
        dispatched = self._dispatched(arm)
        backend, fallback = dispatched.backend, load_backend(FALLBACK)
        covered = {
            decision.region: backend if decision.backend == backend.name else fallback
            for decision in dispatched.decisions
        }
        return Allowed(
            waits=backend.waits,
            skippable=tuple(
                name for name, owner in covered.items() if name in owner.skippable
            ),
            pdl_safe=backend.pdl_safe,
        )

    def abort(self, arm: str) -> Tensor:
        """That of the arm's build."""
        return self._dispatched(arm).waits.abort

    def read_stamps(self, arm: str) -> Mapping[str, Tensor]:
        """What the blocks of its kernels noted, those of a fallback aside.

        Raises:
            BackendError: its backend has said that they do, and they do not.
        """
        stamping = self._dispatched(arm).stamping
        if stamping is None:
            msg = f"{arm}: its step has no read_stamps, and it says that it has stamps"
            raise BackendError(msg)
        return stamping.read_stamps()

    @property
    def error_name(self) -> str:
        """What `error` measures."""
        return "relative error against the reference in higher precision"

    def bound(self, arm: str) -> float:
        """The bound of the arm's backend for the type of the activations."""
        backend = self._dispatched(arm).backend
        return backend.numerics.bound(self._problem.spec.dtype)

    def required_bytes(self, step: int, passes: int) -> int:
        """Bytes that the first `passes` passes must move with the step's routing."""
        return self._required[step][passes - 1]

    def region_bytes(self) -> Iterator[RegionBytes]:
        """Touched bytes of every arm and region beside the required ones."""
        required = self._required_by_region()
        for arm, dispatched in self._arms.items():
            if arm.endswith(AA_SUFFIX):
                continue
            if dispatched.whole is not None:
                yield RegionBytes(
                    arm=arm,
                    region=Region.OTHER,
                    touched=dispatched.whole.layer_bytes(),
                    required=sum(required.values()),
                )
                continue
            for name, needed in required.items():
                touched = dispatched.steps[name].touched_bytes(name)
                yield RegionBytes(
                    arm=arm, region=name, touched=touched, required=needed
                )

    def cache_warnings(self, passes: int, l2_bytes: int) -> Iterator[str]:
        """A warning where the L2 cache could hold a replay for the next one."""
        needed = passes * sum(self._required_by_region().values())
        if needed < L2_FACTOR * l2_bytes:
            yield (
                f"a replay of {passes} passes needs {needed / 1e6:.0f} MB,"
                f" less than {L2_FACTOR} times the L2 cache of {l2_bytes / 1e6:.0f} "
                "MB: weights may be read from the cache; raise --passes or the model's "
                "size"
            )

    def _dispatched(self, arm: str) -> Dispatched:
        return self._arms.get(arm) or self._arms[arm.removesuffix(AA_SUFFIX)]

    def _required_by_region(self) -> dict[Region, int]:
        """Bytes each region of a pass must move, averaged over the drawn routing."""
        spec = self._problem.spec
        drawn = [count for row in self.distinct_experts for count in row]
        distinct: list[int | None] = [*drawn] or [None]
        totals = dict.fromkeys(spec.regions, 0)
        for count in distinct:
            for name, value in required_bytes(spec, count).items():
                totals[name] += value
        return {name: total // len(distinct) for name, total in totals.items()}

    def _chosen(self, arm: str, index: int) -> Tensor | None:
        dispatched = self._dispatched(arm)
        if dispatched.whole is not None:
            return dispatched.whole.expert_ids(index)
        step = dispatched.steps.get(Region.MOE)
        return None if step is None else step.expert_ids(index)

    def _check_experts(self, arm: str, index: int) -> None:
        plan, chosen = self._problem.expert_plan, self._chosen(arm, index)
        if plan is None or chosen is None:
            return
        if not is_planned(chosen, plan[int(self._problem.feed.step), index]):
            msg = (
                f"{arm} chose other experts than the pinned routing in pass {index}; "
                "it does other work and was not timed"
            )
            raise BackendError(msg)

    def _check_cache(self, arm: str, index: int) -> None:
        """Refuse an arm that left new KV rows unwritten; no output would show it."""
        cache = self._problem.caches[index]
        slots = new_slots(self._problem, index)
        for name, pages in (("keys", cache.key), ("values", cache.value)):
            if pages.flatten(0, 1)[slots].isnan().any():
                msg = (
                    f"{arm} did not write the new {name} of pass {index} into the KV "
                    "cache; it does less work and was not timed"
                )
                raise BackendError(msg)


def _distinct(problem: Problem) -> list[list[int]]:
    plan = problem.expert_plan
    return [] if plan is None else distinct_experts(plan)


def _required_sums(problem: Problem) -> list[list[int]]:
    """[steps][passes]: bytes that the first passes together must move."""
    spec = problem.spec
    dense: list[list[int | None]] = [[None] * problem.passes] * problem.steps
    distinct = [[*row] for row in _distinct(problem)] or dense
    cost = {
        count: sum(required_bytes(spec, count).values())
        for row in distinct
        for count in row
    }
    table = []
    for row in distinct:
        sums = torch.tensor([cost[count] for count in row]).cumsum(0)
        table.append([int(value) for value in sums])
    return table
