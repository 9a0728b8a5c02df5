"""What changes from replay to replay: pools of inputs, and the count that picks one.

The count is in device memory, so that a captured graph does the same work on new inputs
each time it is launched.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Pool:
    """The inputs of every step, and where the one of the present step is loaded."""

    rows: Tensor
    """[steps, ...], contiguous."""

    target: Tensor
    """[...], contiguous, of the same type; it never moves."""

    def __post_init__(self) -> None:
        """Refuse what would be copied wrong, since inputs are copied as bytes.

        Raises:
            ValueError: `target` is not laid out as one of `rows`.
        """
        rows, target = self.rows, self.target
        alike = (rows.shape[1:], rows.dtype) == (target.shape, target.dtype)
        if not (alike and rows.is_contiguous() and target.is_contiguous()):
            msg = (
                f"a pool of contiguous inputs {rows.dtype} {[*rows.shape[1:]]} cannot "
                f"be loaded into {target.dtype} {[*target.shape]}"
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Feed:
    """The inputs of a problem by step."""

    steps: int
    """Distinct steps; after the last comes the first."""

    pools: tuple[Pool, ...]

    step: Tensor
    """int64 [1] on the device: which step is loaded."""

    launches: Tensor
    """int64 [1] on the device: replays so far, from 0; `hold` of them a step."""

    hold: Tensor
    """int64 [1] on the device: consecutive replays that share a step."""

    @property
    def device(self) -> torch.device:
        """Where the count and the pools are."""
        return self.step.device


def make_feed(steps: int, pools: tuple[Pool, ...], device: torch.device) -> Feed:
    """A feed at step 0, whose inputs the targets are taken to hold already.

    Raises:
        ValueError: a pool has more or fewer inputs than there are steps.
    """
    lengths = {len(pool.rows) for pool in pools} - {steps}
    if lengths:
        msg = f"pools have {sorted(lengths)} inputs, not one for each of {steps} steps"
        raise ValueError(msg)
    return Feed(
        steps=steps,
        pools=pools,
        step=torch.zeros(1, dtype=torch.int64, device=device),
        launches=torch.zeros(1, dtype=torch.int64, device=device),
        hold=torch.ones(1, dtype=torch.int64, device=device),
    )


def restart(feed: Feed, hold: int, step: int = 0) -> None:
    """Let the next replay run `step`, and `hold` replays in a row share each step.

    Replays that are compared with each other then run the same inputs.
    """
    feed.launches.fill_(step * hold - 1)
    feed.hold.fill_(hold)


def advance(feed: Feed) -> None:
    """Count a replay and load the inputs of its step: the head of every replay.

    Enqueues work only, and may be captured.
    """
    feed.launches.add_(1)
    torch.floor_divide(feed.launches, feed.hold, out=feed.step)
    feed.step.remainder_(feed.steps)
    for pool in feed.pools:
        torch.index_select(pool.rows, 0, feed.step, out=pool.target.unsqueeze(0))
