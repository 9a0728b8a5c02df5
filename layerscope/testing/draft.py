"""Whether a backend's draft chooses the right tokens, and writes nothing else."""

from collections.abc import Callable, Iterator

import msgspec
import torch

from layerscope.arm_switches import switch_values
from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Player, Replay
from layerscope.layers.draft import (
    DraftOptions,
    DraftProblem,
    make_draft,
    poison_draft,
    shortfall,
)
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance, restart
from layerscope.plugin import BackendSpec, DraftContext, DraftStep, Waits
from layerscope.regions import Region, layer_pass, region
from layerscope.study import Arm
from layerscope.testing.planning import planning
from layerscope.testing.raising import calling
from layerscope.testing.watch import Watch, draft_tensors, is_same

_PASSES = 3
_STEPS = 3


def draft(
    backend: BackendSpec, arm: Arm, spec: DraftSpec, device: torch.device
) -> list[str] | None:
    """What is wrong with the draft of `arm` for `spec`; None where it has none."""
    if backend.build_draft is None:
        return None
    options = DraftOptions(passes=_PASSES, steps=_STEPS, device=str(device))
    problem = make_draft(spec, options)
    context = DraftContext(
        problem=problem,
        waits=Waits.on(device),
        switches=switch_values(arm, backend),
    )
    with calling("build_draft"):
        built = backend.build_draft(context)
    with calling("plan"):
        step = built.plan(spec)
    if step is None:
        return None
    foreign = (
        msgspec.structs.replace(spec, tokens=spec.tokens + 1),
        msgspec.structs.replace(spec, requests=spec.requests + 1),
        msgspec.structs.replace(spec, vocab_size=2 * spec.vocab_size),
    )
    found = list(planning(built.plan, spec, foreign, draft_tensors(problem)))
    return (
        found
        or list(_footprint(problem, step))
        or list(_tokens(problem, step, backend.numerics.draft_logit))
    )


def _footprint(problem: DraftProblem, step: DraftStep) -> Iterator[str]:
    player = player_for(problem.device)
    tensors = draft_tensors(problem)
    advance(problem.feed)
    poison_draft(problem)
    for index in range(_PASSES):
        player.wait()
        watch = Watch(tensors)
        with calling(f"run of pass {index}"):
            step.run(index)
        player.wait()
        written = watch.written({f"chosen of pass {index}": None})
        if written:
            yield f"pass {index} wrote to {', '.join(written)}"
            return


def _tokens(problem: DraftProblem, step: DraftStep, bound: float) -> Iterator[str]:
    """What is wrong with the tokens, over replays of every step and one more."""
    player = player_for(problem.device)
    player.wait()  # it captures on a stream of its own
    replay = player.capture(_body(problem, step), _PASSES)
    before: list[torch.Tensor] = []
    first: list[torch.Tensor] = []
    for number in (*range(_STEPS), 0):
        _launch(problem, player, replay, number)
        chosen = [each.chosen.clone() for each in problem.passes]
        wrong = [_wrong_tokens(problem, index, bound) for index in range(_PASSES)]
        if before and any(map(is_same, chosen, before)):
            yield "a replay on new base logits gave the tokens of the one before it"
            return
        if any(wrong):
            yield from filter(None, wrong)
            return
        first, before = first or chosen, chosen
    if not all(map(is_same, first, before)):
        yield "two replays on the same base logits gave different tokens"


def _body(problem: DraftProblem, step: DraftStep) -> Callable[[int], None]:
    head = head_for(problem.feed)

    def play(passes: int) -> None:
        with region(Region.OTHER):
            head()
        for index in range(passes):
            with (
                layer_pass(index),
                region(Region.DRAFT),
                calling(f"run of pass {index}"),
            ):
                step.run(index)

    return play


def _launch(problem: DraftProblem, player: Player, replay: Replay, step: int) -> None:
    """Replay `step` on poisoned results, and wait for it.

    The player has a stream of its own, so it also waits for what prepares the replay.
    """
    restart(problem.feed, 1, step)
    poison_draft(problem)
    player.wait()
    replay.launch()
    player.wait()


def _wrong_tokens(problem: DraftProblem, index: int, bound: float) -> str:
    chosen = problem.passes[index].chosen
    if bool((chosen == -1).any()):
        return f"pass {index} left tokens unwritten"
    if bool(((chosen < 0) | (chosen >= problem.spec.vocab_slice)).any()):
        return f"pass {index} chose tokens that are not in the vocabulary's slice"
    short = shortfall(problem, index)
    if short == float("inf"):
        return f"pass {index} did not take the lowest of the tokens that tie"
    if short > bound:
        return (
            f"pass {index} chose a token whose logit is {short:.2g} below the best "
            f"one; its bound is {bound:.2g}"
        )
    return ""
