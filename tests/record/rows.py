"""Rows of a profiler, built by hand for the tests of the recorder and its mapping."""

import torch

from layerscope.graphs.eager import EagerReplay
from layerscope.record.kineto import Expected, Raw
from layerscope.record.recorder import Event, Launch, Place, head_place
from layerscope.regions import Mark, Region

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
REPLAY = EagerReplay(lambda passes: None, 1)  # noqa: ARG005 (never launched)
LAUNCH = Launch(REPLAY, "reference", 0, 3)
ATTENTION, MOE = Place(0, Region.ATTENTION), Place(0, Region.MOE)


def cpu(name: str, start_ns: int, end_ns: int, number: int = 0) -> Raw:
    """An operator or a runtime call; `number` is its correlation id."""
    return Raw(name, start_ns, end_ns, on_gpu=False, lane=1, correlation=number,
               operator=0, annotation=False)  # fmt: skip


def mark(kind: str, name: str, start_ns: int, end_ns: int) -> Raw:
    """The range that `record_function` makes of a mark."""
    return cpu(Mark(kind, name).label, start_ns, end_ns)._replace(annotation=True)


def gpu(name: str, start_ns: int, end_ns: int, launch: int, operator: int = 0) -> Raw:
    """A kernel, copy or fill on stream 7."""
    return Raw(name, start_ns, end_ns, on_gpu=True, lane=7, correlation=launch,
               operator=operator, annotation=False)  # fmt: skip


EXPECTED = [
    Expected(head_place(), "Memcpy DtoD (Device -> Device)"),
    Expected(ATTENTION, "attend"),
    Expected(MOE, "Memset (Device)"),
]
GROUP = [
    gpu("Memcpy DtoD (Device -> Device)", 10, 12, 9),
    gpu("attend", 13, 20, 9),
    gpu("Memset (Device)", 21, 22, 9),
]
PLACES = {0: head_place(), 1: ATTENTION, 2: MOE}
EVENTS = (
    Event(0, "copy", "Memcpy DtoD (Device -> Device)", 7, 10, 12),
    Event(1, "kernel", "attend", 7, 13, 20),
    Event(2, "fill", "Memset (Device)", 7, 21, 22),
)
