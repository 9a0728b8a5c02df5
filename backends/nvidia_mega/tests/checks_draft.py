"""What must hold for the draft in one launch on any bench."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from backends.standard.tests.bench import Bench
from backends.standard.tests.delays import count_wrong, draft_chain
from layerscope.layers.draft import (
    DraftOptions,
    DraftProblem,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.plugin import Waits
from layerscope_nvidia_mega.draft import BuiltDraft, DraftStep, Placement, Room
from layerscope_standard.draft import DraftStep as StandardStep
from layerscope_standard.kernels import Enqueue, Kernel, Launch, Launcher
from layerscope_standard.workshop import Workshop

PASSES, STEPS = 2, 3

Step = DraftStep | StandardStep


def problem_on(bench: Bench, spec: DraftSpec) -> DraftProblem:
    """Two passes with inputs for three steps."""
    options = DraftOptions(passes=PASSES, steps=STEPS, device=str(bench.device))
    return make_draft(spec, options)


def step_of(
    problem: DraftProblem, workshop: Workshop, waits: Waits, room: Room
) -> DraftStep:
    """The step, which must be there."""
    step = BuiltDraft(problem, workshop, waits, room).plan(problem.spec)
    assert step is not None
    return step


def tokens(bench: Bench, problem: DraftProblem, step: Step) -> list[Tensor]:
    """Of all passes, with what was there before poisoned."""
    poison_draft(problem)
    for index in range(len(problem.passes)):
        step.run(index)
    bench.wait()
    return [each.chosen.clone() for each in problem.passes]


def same(found: Sequence[Tensor], want: Sequence[Tensor]) -> bool:
    """Whether all tokens are."""
    return all(map(torch.equal, found, want))


def check_tokens(bench: Bench, spec: DraftSpec, room: Room) -> DraftStep:
    """The best ones, and those of one launch a token; `count_wrong` replays."""
    problem, waits = problem_on(bench, spec), Waits.on(bench.device)
    workshop = bench.workshop()
    step = step_of(problem, workshop, waits, room)
    standard = StandardStep(problem, bench.workshop())
    for _ in range(STEPS):
        advance(problem.feed)
        found = tokens(bench, problem, step)
        assert max(shortfall(problem, index) for index in range(PASSES)) <= 1e-5
        assert same(found, tokens(bench, problem, standard))
    right = draft_chain(problem, bench.workshop(), standard)
    tried = draft_chain(problem, workshop, step)
    assert count_wrong(right, tried, 2 * STEPS) == 0
    assert waits.abort.tolist() == [0]
    return step


def check_coarse_logits(bench: Bench, spec: DraftSpec, room: Room) -> None:
    """Where the base leaves few bits of the sums, so that many tokens tie at the top.

    Which ones do depends on how every sum is rounded.
    """
    problem, waits = problem_on(bench, spec), Waits.on(bench.device)
    step = step_of(problem, bench.workshop(), waits, room)
    standard = StandardStep(problem, bench.workshop())
    for exponent in (12, 16, 20):
        for each in problem.passes:
            each.base.fill_(2.0**exponent)
        assert same(tokens(bench, problem, step), tokens(bench, problem, standard))


def check_ties(bench: Bench, spec: DraftSpec, room: Room, apart: Sequence[int]) -> None:
    """Two tokens so far apart tie, as do zeros of either sign: the lower one is taken.

    So many are within a thread's rows, within a tile, in two tiles of a warp, in two
    warps, or in two blocks.
    """
    problem, waits = problem_on(bench, spec), Waits.on(bench.device)
    for each in problem.passes:
        values = each.w2 if isinstance(each.w2, Tensor) else each.w2.data
        values.zero_()
    step = step_of(problem, bench.workshop(), waits, room)
    draw = torch.Generator().manual_seed(41)
    for distance in apart:
        picks = spec.tokens, spec.requests
        lower = torch.randint(spec.vocab_slice - distance, picks, generator=draw)
        lower = lower.to(bench.device)
        for each in problem.passes:
            each.base.fill_(-1.0)
            each.base.scatter_(-1, lower[..., None], -0.0)
            each.base.scatter_(-1, lower[..., None] + distance, 0.0)
        assert same(tokens(bench, problem, step), [lower] * PASSES)


@dataclass
class Lame:
    """A launcher whose launches lack a block while it is told so."""

    launcher: Launcher
    absent: int
    is_lame: bool = False
    launches: list[Launch] = field(default_factory=list)

    def prepare(self, launch: Launch) -> Enqueue:
        """Both, with the same memory."""
        self.launches.append(launch)
        macros = (*launch.kernel.defines, ("ABSENT", self.absent))
        lame = replace(launch, kernel=replace(launch.kernel, defines=macros))
        enqueues = self.launcher.prepare(launch), self.launcher.prepare(lame)

        def enqueue() -> None:
            enqueues[self.is_lame]()  # as it is when it is enqueued

        return enqueue

    def read_stamps(self, kernel: Kernel) -> Tensor:
        """Of the whole kernel."""
        return self.launcher.read_stamps(kernel)


def check_abort(bench: Bench, spec: DraftSpec, room: Room, deadline_s: float) -> None:
    """A block that never comes ends the launch, and the next ones, until it is cleared.

    No token is written then, and once it is cleared all is right again.
    """
    problem = problem_on(bench, spec)
    waits = replace(Waits.on(bench.device), deadline_s=deadline_s)
    workshop = bench.workshop()
    for absent in (1, Placement(spec, room).blocks - 1, 0):
        lame = Lame(workshop.launcher, absent)
        step = step_of(problem, replace(workshop, launcher=lame), waits, room)
        want = tokens(bench, problem, step)
        assert all(bool((each >= 0).all()) for each in want)
        lame.is_lame = True
        for each in tokens(bench, problem, step):
            assert bool((each == -1).all())
        assert waits.abort.tolist() == [1]
        lame.is_lame = False
        slots = step.slots
        assert bool(slots.any())
        for each in tokens(bench, problem, step):
            assert bool((each == -1).all())
        assert waits.abort.tolist() == [1]
        assert not bool(slots.any())
        waits.abort.zero_()
        assert same(tokens(bench, problem, step), want)
        advance(problem.feed)
        found = tokens(bench, problem, step)
        assert max(shortfall(problem, index) for index in range(PASSES)) <= 1e-5
        assert not same(found, want)
        assert waits.abort.tolist() == [0]
