"""Random delays in every kernel: whether each waits for all that it needs.

A kernel that starts early and reads what is not there yet, or overwrites what is still
read, mostly gets away with it. So every warp stays for a random time after it begins,
after its wait and at its end, all that kernels hand to each other is poisoned before
each replay, inputs are others from replay to replay, and every bit of the results is
compared with that of kernels that run one after another. Nothing is synchronised with
the host until the last replay.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import torch
from torch import Tensor

from backends.standard.tests.bench import poison
from layerscope.layers.draft import DraftProblem, poison_draft
from layerscope.layers.feed import Feed, advance, restart
from layerscope.layers.problem import (
    Problem,
    ProblemOptions,
    make_problem,
    new_slots,
)
from layerscope.layers.problem import poison as poison_results
from layerscope.layers.spec import LayerSpec
from layerscope.regions import Region
from layerscope_standard.kernels import Enqueue, Kernel, Launch, Launcher
from layerscope_standard.workshop import Workshop

Macros: TypeAlias = tuple[tuple[str, int], ...]
"""Of code/turns.cuh, with their values."""

REPLAYS: Final = int(os.environ.get("LAYERSCOPE_REPLAYS", "10000"))
"""Of a test on a GPU; fewer make it short."""

CONTROL_REPLAYS: Final = 300

DELAY_NS: Final = 2_000
"""A warp stays for up to twice as long at each place."""

STEPS: Final = 8
"""Different inputs, which replays take in turn."""

PASSES: Final = 4

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WARM: Final = 2


class _LayerStep(Protocol):
    def run(self, region: Region, pass_index: int) -> None:
        """As `plugin.Step.run`."""


class _DraftStep(Protocol):
    def run(self, pass_index: int) -> None:
        """As `plugin.DraftStep.run`."""


@dataclass(frozen=True)
class Chain:
    """One way to compute the results of a problem from the inputs of its feed."""

    feed: Feed
    play: Callable[[], None]
    """Enqueues all passes."""

    poison: Callable[[], None]
    """Enqueues what ruins all that the passes write: results, and between kernels."""

    results: Callable[[], list[Tensor]]
    """What the passes have written, to be compared; never the same memory twice."""


def problem_of(spec: LayerSpec, device: torch.device) -> Problem:
    """Several passes with several inputs."""
    options = ProblemOptions(passes=PASSES, steps=STEPS, device=str(device))
    return make_problem(spec, options)


def layer_chain(problem: Problem, workshop: Workshop, step: _LayerStep) -> Chain:
    """The passes of a layer: their outputs, and their new rows of the cache."""
    slots = [new_slots(problem, index) for index in range(problem.passes)]

    def play() -> None:
        for index in range(problem.passes):
            for region in problem.spec.regions:
                step.run(region, index)

    def ruin() -> None:
        poison_results(problem)
        poison(workshop)

    def results() -> list[Tensor]:
        rows = [
            pages.flatten(0, 1)[own]
            for own, cache in zip(slots, problem.caches, strict=True)
            for pages in (cache.key, cache.value)
        ]
        return [*(buffers.out for buffers in problem.buffers), *rows]

    return Chain(problem.feed, play, ruin, results)


def draft_chain(problem: DraftProblem, workshop: Workshop, step: _DraftStep) -> Chain:
    """The passes of a draft: the tokens that they choose."""

    def play() -> None:
        for index in range(len(problem.passes)):
            step.run(index)

    def ruin() -> None:
        poison_draft(problem)
        poison(workshop)

    def results() -> list[Tensor]:
        return [each.chosen for each in problem.passes]

    return Chain(problem.feed, play, ruin, results)


@dataclass(frozen=True)
class Altering:
    """A `kernels.Launcher` that compiles kernels with more macros."""

    launcher: Launcher
    more: Callable[[Kernel], Macros]

    def prepare(self, launch: Launch) -> Enqueue:
        """As the other launcher does."""
        return self.launcher.prepare(
            replace(launch, kernel=self._altered(launch.kernel))
        )

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """As the other launcher does."""
        return self.launcher.read_stamps(self._altered(kernel))

    def _altered(self, kernel: Kernel) -> Kernel:
        return replace(kernel, defines=(*kernel.defines, *self.more(kernel)))


def altered(workshop: Workshop, more: Callable[[Kernel], Macros]) -> Workshop:
    """The same, whose kernels have more macros."""
    return replace(workshop, launcher=Altering(workshop.launcher, more))


def delayed(workshop: Workshop, delay_ns: int = DELAY_NS) -> Workshop:
    """The same with random delays in every kernel."""
    return altered(workshop, lambda _: (("DELAYS", delay_ns),))


def without_wait(workshop: Workshop, name: str) -> Workshop:
    """The same, whose kernel `name` waits for none before it."""
    return altered(
        workshop, lambda kernel: (("NO_WAIT", 1),) if kernel.name == name else ()
    )


def count_wrong(
    right: Chain, tried: Chain, replays: int, *, is_poisoned: bool = True
) -> int:
    """In how many replays of `tried` a bit differs from what `right` gives.

    Both are of one problem, and `right` is right. On a GPU the replays are of one
    captured graph.

    Args:
        right: run once for each step, kernel by kernel.
        tried: what is replayed.
        replays: how often.
        is_poisoned: whether what it writes is ruined before each replay. Without that,
            a kernel that reads too early finds what the replay before has left: wrong
            too, but no address or index that a kernel could not use.
    """
    feed = tried.feed
    expected = _expected(right)
    wrong = torch.zeros(1, dtype=torch.int64, device=feed.device)

    def replay() -> None:
        advance(feed)
        if is_poisoned:
            tried.poison()
        tried.play()
        differs = torch.zeros_like(wrong)
        for found, want in zip(tried.results(), expected, strict=True):
            differs |= (_bits(found) != want.index_select(0, feed.step)[0]).any()
        wrong.add_(differs)

    # Without torch's cache of memory, as under a sanitizer, nothing can be captured.
    cached = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") == "0"
    is_captured = feed.device.type == "cuda" and cached
    launch = _captured(replay) if is_captured else replay
    restart(feed, 1)
    wrong.zero_()
    for _ in range(replays):
        launch()
    return int(wrong)


def check_control(
    right: Chain, make: Callable[[Workshop], Chain], workshop: Workshop, name: str
) -> None:
    """A kernel that does not wait is found, and nothing else is.

    Nothing is poisoned: what is read too early is of an earlier replay, so that every
    index in it is one.

    Args:
        right: what is right.
        make: the chain, with other memory than that of `right`.
        workshop: what it is made with, but for delays; kernels trigger at entry.
        name: of the kernel whose wait is left out.
    """
    for changed, is_right in (
        (delayed(workshop), True),
        (without_wait(delayed(workshop), name), False),
    ):
        tried = make(changed)
        for each in workshop.scratch:
            each.zero_()
        wrong = count_wrong(right, tried, CONTROL_REPLAYS, is_poisoned=False)
        assert (wrong == 0) == is_right, wrong


def _expected(right: Chain) -> list[Tensor]:
    """The bits of every result, [steps, ...]; numbers, and others at every step."""
    restart(right.feed, 1)
    found: list[Sequence[Tensor]] = []
    for _ in range(right.feed.steps):
        advance(right.feed)
        right.poison()
        right.play()
        results = right.results()
        assert all(bool(each.isfinite().all()) for each in results)
        found.append([_bits(each).clone() for each in results])
    first, *others = found
    for other in others:
        assert not all(map(torch.equal, first, other))
    return [torch.stack(each) for each in zip(*found, strict=True)]


def _bits(tensor: Tensor) -> Tensor:
    """As integers: NaN is equal to itself, and no zero to the other."""
    return tensor.contiguous().view(_BITS[tensor.element_size()])


def _captured(replay: Callable[[], None]) -> Callable[[], None]:
    """A graph of what `replay` enqueues, which has run before, ready to be launched."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM):
            replay()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replay()
    return graph.replay
