import torch

from backends.standard.tests.compiled import PROCESSORS, NotingLauncher
from layerscope.layers.weights import quantise
from layerscope_standard.packing import packed
from layerscope_standard.selection import Selection
from layerscope_standard.workshop import Workshop

MATRIX = torch.linspace(-1.0, 1.0, 32 * 128, dtype=torch.bfloat16).view(32, 128)


def new_workshop() -> Workshop:
    """One that has made nothing."""
    return Workshop(NotingLauncher(), torch.device("cpu"), PROCESSORS, Selection())


def test_plain_weights_are_taken_as_they_are() -> None:
    """No memory is made for them, and they have no scales."""
    workshop = new_workshop()
    values, scales = workshop.operand(MATRIX)
    assert values is MATRIX
    assert scales is None
    assert workshop.device_bytes == 0


def test_packed_weights_are_counted_once() -> None:
    """However many kernels take them; their scales are the problem's own."""
    workshop, weight = new_workshop(), quantise(MATRIX)
    values, scales = workshop.operand(weight)
    assert torch.equal(values.view(torch.uint8), packed(weight.data).view(torch.uint8))
    assert scales is weight.scale
    assert workshop.operand(weight)[0] is values
    assert workshop.device_bytes == 32 * 128
    workshop.operand(quantise(MATRIX))
    assert workshop.device_bytes == 2 * 32 * 128


def test_workshops_share_what_is_packed() -> None:
    """Layers of one problem have one copy, which counts where it was made."""
    first, second, weight = new_workshop(), new_workshop(), quantise(MATRIX)
    assert first.operand(weight)[0] is second.operand(weight)[0]
    assert first.device_bytes == 32 * 128
    assert second.device_bytes == 0
