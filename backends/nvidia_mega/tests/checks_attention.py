"""What must hold for the kernel that makes its own queries, on any bench."""

from dataclasses import replace

import torch

from backends.standard.tests.bench import Bench, poison
from layerscope.layers.problem import new_slots
from layerscope.layers.spec import LayerSpec
from layerscope_nvidia_mega.rope_attention import ROLE, rope_attention
from layerscope_standard.attention import make_attention
from layerscope_standard.selection import Choice

EARLY = (("TRIGGER", 1), ("LOADS_EARLY", 1))


def check_rope_attention(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Bit for bit rope and attention after it, from `splits` parts of qkv.

    So are the new rows of the cache; the others stay as they are.
    """
    problem, workshop = bench.problem(spec), bench.workshop()
    selection = workshop.selection.overridden("qkv", Choice(options={"splits": splits}))
    for turns in ({}, {ROLE: EARLY, "attention": EARLY, "rope_kv_write": EARLY}):
        made = make_attention(
            problem, replace(workshop, selection=selection, turns=turns)
        )
        for index, seed in ((0, 19), (1, 20)):
            cache, slots = problem.caches[index], new_slots(problem, index)
            rows = [each.flatten(0, 1) for each in (cache.key, cache.value)]
            draw = torch.Generator().manual_seed(seed)
            parts = torch.randn(made.qkv.parts.shape, generator=draw)
            found = []
            for operations in (
                (made.rope(index), made.attention(index)),
                (rope_attention(made, index),),
            ):
                poison(workshop)
                made.qkv.parts.copy_(parts)
                for each in rows:
                    each[slots] = torch.nan
                for operation in operations:
                    operation.enqueue()
                bench.wait()
                written = (made.mixed, made.stats, cache.key, cache.value)
                found.append([each.clone() for each in written])
            for want, got in zip(*found, strict=True):
                assert not bool(want.isnan().any())
                assert torch.equal(got, want)
