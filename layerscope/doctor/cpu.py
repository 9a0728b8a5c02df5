"""The processor, where a study measures it."""

import os
from typing import Final

import torch

from layerscope.environment import DeviceFacts
from layerscope.graphs.device import spare_core
from layerscope.report.diagnosis import Finding, State
from layerscope.units import format_bytes, format_number

TOPICS: Final = ("CPU", "load")


def processor(device: DeviceFacts, cores: int, measuring: int) -> Finding:
    """The cores, and how many threads of them a study takes.

    Args:
        device: the CPU as torch tells it.
        cores: that this process may run on.
        measuring: threads of torch while a layer is measured.
    """
    free = format_bytes(device.memory_bytes)
    found = f"{device.name}, {measuring} of {cores} cores measure, {free} free"
    if measuring < cores:
        return Finding("CPU", State.OK, found)
    return Finding(
        "CPU",
        State.LIMITED,
        found,
        "no core is left for the rest of the system, which then stops the layer",
        f"export OMP_NUM_THREADS={cores - 1}" if cores > 1 else "take a larger machine",
    )


def load(average: float, cores: int, measuring: int) -> Finding:
    """Whether others need the cores that a study takes.

    Args:
        average: runnable threads of the machine over the last minute.
        cores: that this process may run on.
        measuring: threads of torch while a layer is measured.
    """
    found = f"{format_number(average, 1)} threads were busy in the last minute"
    if average + measuring <= cores:
        return Finding("load", State.OK, found)
    return Finding(
        "load",
        State.LIMITED,
        f"{found}, and a study takes {measuring} of {cores} cores",
        "others take the cores that measure; times will scatter",
        "stop what runs beside it: top -o %CPU",
    )


def findings(device: DeviceFacts) -> tuple[Finding, ...]:
    """Both, as they are now."""
    cores = len(os.sched_getaffinity(0))
    with spare_core(torch.device("cpu")):
        measuring = torch.get_num_threads()
    average, *_ = os.getloadavg()
    return processor(device, cores, measuring), load(average, cores, measuring)
