"""The draft as a workload: every arm drafts from the same logits and weights."""

from collections.abc import Iterator

from torch import Tensor

from layerscope.graphs.edits import Allowed
from layerscope.layers.draft import DraftProblem, poison_draft, shortfall
from layerscope.layers.feed import Feed
from layerscope.regions import Region, region
from layerscope.registry import DispatchedDraft
from layerscope.run_header import RegionBytes
from layerscope.study import AA_SUFFIX, L2_FACTOR


class DraftWorkload:
    """A draft's problem and the arms that were built for it; see `Workload`."""

    def __init__(self, problem: DraftProblem, arms: dict[str, DispatchedDraft]) -> None:
        """Take `arms` by name; an A/A arm that is not there is the arm it repeats."""
        self._problem = problem
        self._arms = arms

    @property
    def feed(self) -> Feed:
        """The base logits and last accepted tokens of every step."""
        return self._problem.feed

    def run_pass(self, arm: str, index: int, passes: int) -> None:  # noqa: ARG002
        """Enqueue all tokens of pass `index`."""
        with region(Region.DRAFT):
            self._dispatched(arm).step.run(index)

    def poison(self) -> None:
        """Write -1 to all tokens that must be drafted."""
        poison_draft(self._problem)

    def checked(self, passes: int) -> list[int]:
        """Every pass: a token more or less costs little."""
        return list(range(passes))

    def error(self, arm: str, index: int, passes: int) -> float:  # noqa: ARG002
        """How far the pass's worst token is from the best one, as logits."""
        return shortfall(self._problem, index)

    def outputs(self, arm: str, passes: int) -> list[Tensor]:  # noqa: ARG002
        """The tokens of every pass."""
        return [one.chosen for one in self._problem.passes[:passes]]

    def allowed(self, arm: str) -> Allowed:
        """What the arm's backend says of its kernels; its one region stays."""
        backend = self._dispatched(arm).backend
        return Allowed(waits=backend.waits, pdl_safe=backend.pdl_safe)

    def abort(self, arm: str) -> Tensor:
        """That of the arm's build."""
        return self._dispatched(arm).waits.abort

    @property
    def error_name(self) -> str:
        """What `error` measures."""
        return "logit of a token below the best one by"

    def bound(self, arm: str) -> float:
        """The bound of the arm's backend."""
        return self._dispatched(arm).backend.numerics.draft_logit

    def required_bytes(self, step: int, passes: int) -> int:  # noqa: ARG002
        """Bytes that the first `passes` passes must move; the same at every step."""
        return passes * self._problem.spec.required_bytes

    def region_bytes(self) -> Iterator[RegionBytes]:
        """Touched bytes of every arm beside the required ones."""
        for arm, dispatched in self._arms.items():
            if arm.endswith(AA_SUFFIX):
                continue
            yield RegionBytes(
                arm=arm,
                region=Region.DRAFT,
                touched=dispatched.step.touched_bytes(),
                required=self._problem.spec.required_bytes,
            )

    def cache_warnings(self, passes: int, l2_bytes: int) -> Iterator[str]:
        """A warning where w2 is still in the cache when a pass comes round again."""
        weights = passes * self._problem.spec.w2_bytes
        if weights < L2_FACTOR * l2_bytes:
            yield (
                f"{passes} passes have {weights / 1e6:.0f} MB of w2, less than "
                f"{L2_FACTOR} times the L2 cache of {l2_bytes / 1e6:.0f} MB: even a "
                "pass's first token may find it there; raise --passes"
            )

    def _dispatched(self, arm: str) -> DispatchedDraft:
        return self._arms.get(arm) or self._arms[arm.removesuffix(AA_SUFFIX)]
