"""Asks every topic that has a meaning here, in the order in which they are told."""

from typing import Final

from layerscope.doctor import software
from layerscope.errors import InputError
from layerscope.report.diagnosis import Diagnosis, Section, not_applicable

DEVICES: Final = ("auto", "cpu", "cuda")

_DEVICE: Final = ("GPU", "CPU")


def examine(device: str) -> Diagnosis:
    """What can be measured on `device`; disturbs no one and changes nothing.

    Each probe turns what its library raises into a finding. On a GPU a few kernels of
    one element run, unless others compute there.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``, as ``layerscope profile`` takes it.

    Raises:
        InputError: `device` is none of them.
    """
    if device not in DEVICES:
        msg = f"unknown device {device!r}; use one of {', '.join(DEVICES)}"
        raise InputError(msg)
    python, torch, safetensors = (
        software.python(),
        software.torch(),
        software.safetensors(),
    )
    if torch.blocks:
        rest = not_applicable(("backends", *_DEVICE), "needs torch")
        found = (python, torch, safetensors, *rest)
        return Diagnosis(None, (Section("software", found),))
    from layerscope.doctor.machine import sections  # noqa: PLC0415 (imports torch)

    facts, others = sections(device)
    programs = (python, torch, safetensors, software.backends())
    return Diagnosis(facts, (Section("software", programs), *others))
