"""What a bench measures, whoever made it: a layer, a draft, or foreign callables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from torch import Tensor

from layerscope.graphs.edits import Allowed
from layerscope.layers.feed import Feed
from layerscope.run_header import RegionBytes

ReadStamps: TypeAlias = Callable[[str], Mapping[str, Tensor]]
"""What the blocks of a stamped arm's kernels noted, as `plugin.Stamping` says."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a process of its own makes a workload again.

    Edited graphs first run there, where one that hangs can be ended.
    """

    factory: str
    """``module:function``; it is called with `arguments` by name, as msgspec decoded
    them, and with ``arms`` (names, to be built) and ``passes``."""

    arguments: dict[str, Any]


class FirstWorkload(Protocol):
    """As much of a `Workload` as first runs of edited graphs need."""

    @property
    def feed(self) -> Feed:
        """The inputs of every step."""

    def run_pass(self, arm: str, index: int, passes: int) -> None:
        """Enqueue pass `index` of a replay of `passes` passes, its regions marked."""

    def poison(self) -> None:
        """Spoil what the passes of a replay must write, so that omissions show."""

    def bound(self, arm: str) -> float:
        """The largest error that is taken as right."""

    def outputs(self, arm: str, passes: int) -> Sequence[Tensor]:
        """What a replay of `passes` passes of the arm writes and later work reads."""

    def allowed(self, arm: str) -> Allowed:
        """Which edits of its graph the arm's kernels stand."""

    def abort(self, arm: str) -> Tensor | None:
        """What the arm's kernels set once a wait has given up, as `Waits.abort`.

        None where nothing of the arm knows of it.
        """


class Workload(FirstWorkload, Protocol):
    """Arms that do the same work on the same inputs."""

    def checked(self, passes: int) -> Sequence[int]:
        """The passes of a replay of `passes` passes whose results can be checked."""

    def error(self, arm: str, index: int, passes: int) -> float:
        """The error of a pass of the arm's last replay; inf where it is not finite.

        Raises:
            BackendError: the arm did other work than it was asked to.
        """

    @property
    def error_name(self) -> str:
        """What `error` measures, in words that a number can follow."""

    def required_bytes(self, step: int, passes: int) -> int | None:
        """Bytes that the first `passes` passes of a step must move, if known."""

    def region_bytes(self) -> Iterable[RegionBytes]:
        """Bytes that regions of a pass move, as far as they are known."""

    def cache_warnings(self, passes: int, l2_bytes: int) -> Iterable[str]:
        """What is wrong with replays of `passes` passes beside such an L2 cache."""
