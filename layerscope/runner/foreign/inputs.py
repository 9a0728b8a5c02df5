"""Inputs by step: drawn once, kept as bytes, loaded at the head of every replay."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.graphs.memory import free_bytes
from layerscope.layers.feed import Feed, Pool, make_feed
from layerscope.runner.foreign.arguments import (
    PLAIN,
    Arguments,
    Given,
    Layout,
    View,
    fingerprint,
    name_of,
    told,
)
from layerscope.runner.foreign.reading import read
from layerscope.units import format_bytes

STEPS: Final = 32
"""Steps for which a function of the step is asked."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments in memory that never moves, and what it holds by step."""

    layout: Layout
    rows: tuple[tuple[Tensor, ...], ...]
    """uint8 [bytes] by step and span; not to be written."""

    live: Arguments
    """What captured calls get."""

    feed: Feed
    """Loads the spans that need it into their live memory."""

    written: frozenset[int]
    """Spans that callables change."""

    fingerprints: Mapping[int, Tensor]
    """Of the `fixed` spans, as they were drawn."""

    @property
    def fixed(self) -> AbstractSet[int]:
        """Spans that are the same at every step and are not written; never loaded."""
        return self.fingerprints.keys()

    def changed(self) -> list[str]:
        """Names of the arguments that should be fixed, and no longer are as drawn."""
        memory = self.live.memory
        marks = self.fingerprints.items()
        spans = {
            span for span, was in marks if not fingerprint(memory[span]).equal(was)
        }
        return self.layout.names_in(spans)

    def fresh(self, step: int) -> Arguments:
        """Arguments as a replay of `step` begins with, in memory of their own."""
        rows = enumerate(self.rows[step])
        copies = [row if span in self.fixed else row.clone() for span, row in rows]
        return self.layout.arguments(copies)

    def before(self, step: int) -> tuple[Tensor, ...]:
        """The tensors that a replay of `step` begins with; not to be written."""
        return self.layout.arguments(self.rows[step]).tensors


@dataclass(slots=True)
class Drawn:
    """Inputs of all steps, before it is known which of them callables write."""

    layout: Layout
    rows: list[tuple[Tensor, ...]]
    """uint8 [bytes] by step and span; one object where a step's equal the first's."""

    @property
    def device(self) -> torch.device | None:
        """Where the tensors are; None without any."""
        return self.rows[0][0].device if self.rows[0] else None

    @property
    def tried(self) -> tuple[int, ...]:
        """The first step, and the last one that differs from it."""
        others = [step for step in range(len(self.rows)) if self._new(step)]
        return (0, *others[-1:])

    def fresh(self, step: int = 0) -> Arguments:
        """Arguments of a step, in memory of their own."""
        return self.layout.arguments([row.clone() for row in self.rows[step]])

    def before(self, step: int = 0) -> tuple[Tensor, ...]:
        """The tensors of a step; not to be written."""
        return self.layout.arguments(self.rows[step]).tensors

    def written(self, arguments: Arguments, step: int = 0) -> set[int]:
        """Spans of `fresh` arguments that were written since.

        What is written as it was before shows in the counts of torch, and what those
        miss in the bytes.
        """
        pairs = enumerate(zip(arguments.memory, self.rows[step], strict=True))
        changed = {span for span, (now, before) in pairs if not now.equal(before)}
        return changed | self.layout.touched(arguments)

    def left(
        self, arguments: Arguments, written: AbstractSet[int], step: int = 0
    ) -> tuple[Tensor, ...]:
        """The tensors of `fresh` arguments of which only the `written` are new.

        The others are given as they were before, so that their copies can be freed.
        """
        pairs = enumerate(zip(arguments.memory, self.rows[step], strict=True))
        kept = [now if span in written else before for span, (now, before) in pairs]
        return self.layout.arguments(kept).tensors

    def settled(self, written: AbstractSet[int], device: torch.device) -> Inputs:
        """Place the inputs where calls on `device` find them.

        Args:
            written: spans that callables change, so that they must be loaded again.
            device: where the calls run.

        Raises:
            InputError: there is no room for what must be loaded, at every step.
        """
        first = self.rows[0]
        spans = range(len(first))
        changing = {span for step in range(len(self.rows)) for span in self._new(step)}
        rows = self.rows if changing else self.rows[:1]
        loaded = sorted(changing | written)
        _refuse_too_large(len(rows) * sum(first[i].nbytes for i in loaded), device)
        pools = {
            span: Pool(torch.stack([row[span] for row in rows]), first[span].clone())
            for span in loaded
        }
        live = [pools[i].target if i in pools else first[i] for i in spans]
        return Inputs(
            layout=self.layout,
            rows=tuple(
                tuple(pools[i].rows[k] if i in pools else first[i] for i in spans)
                for k in range(len(rows))
            ),
            live=self.layout.arguments(live),
            feed=make_feed(len(rows), tuple(pools.values()), device),
            written=frozenset(written),
            fingerprints={i: fingerprint(first[i]) for i in spans if i not in pools},
        )

    def _new(self, step: int) -> list[int]:
        """Spans of a step that are not as at the first."""
        pairs = enumerate(zip(self.rows[step], self.rows[0], strict=True))
        return [span for span, (now, first) in pairs if now is not first]


def draw(inputs: Given | Callable[[int], Given]) -> Drawn:
    """Take copies of `inputs`, or of what they give for every step.

    Raises:
        InputError: they are no arguments, on several devices, of a kind that cannot be
            copied, or of another kind at another step.
    """
    if isinstance(inputs, Mapping | Sequence) or not callable(inputs):
        layout, row = read(inputs)
        return Drawn(layout, [row])
    layout, row = read(inputs(0))
    drawn = Drawn(layout, [row])
    for step in range(1, STEPS):
        layout, row = read(inputs(step))
        _refuse_other(drawn.layout, layout, step)
        pairs = zip(drawn.rows[0], row, strict=True)
        drawn.rows.append(
            tuple(first if first.equal(now) else now for first, now in pairs)
        )
    return drawn


def _refuse_other(first: Layout, layout: Layout, step: int) -> None:
    if (first.nesting, first.paths) != (layout.nesting, layout.paths):
        msg = f"inputs are nested otherwise at step {step} than at step 0"
        raise InputError(msg)
    for path, one, other in zip(first.paths, first.leaves, layout.leaves, strict=True):
        is_same = one is other or (isinstance(one, (View, *PLAIN)) and one == other)
        if is_same:
            continue
        name, before, now = name_of(path), told(one), told(other)
        change = f"is {before} at step 0, and {now} at step {step}"
        if before == now and isinstance(one, View):
            change = f"({now}) lies otherwise in memory at step {step}"
        elif before == now:
            change = f"is another {now} at step {step}"
        msg = f"{name} {change}; only the values of tensors may change between steps"
        raise InputError(msg)


def _refuse_too_large(needed_bytes: int, device: torch.device) -> None:
    available_bytes = free_bytes(device)
    if needed_bytes > available_bytes:
        msg = (
            f"inputs that change or are written need {format_bytes(needed_bytes)} for "
            f"their steps, and {format_bytes(available_bytes)} are free; give them as "
            "a sequence, which is one step, instead of a function"
        )
        raise InputError(msg)
