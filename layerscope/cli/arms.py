"""The value of ``--arms``: backends with their switches, in text."""

from layerscope.errors import InputError
from layerscope.study import Arm


def parse_arms(text: str) -> tuple[Arm, ...]:
    """The arms of ``A,B:switch=value:other=value``, in order.

    Whether such backends and switches exist is for the registry to say.

    Raises:
        InputError: an arm has no name, a switch no value, or something comes twice.
    """
    arms = tuple(_parse_arm(part.strip(), text) for part in text.split(","))
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            msg = f"--arms names {name} twice; the A/A capture is made without asking"
            raise InputError(msg)
    return arms


def _parse_arm(part: str, text: str) -> Arm:
    backend, *pairs = part.split(":")
    if not backend:
        msg = f"--arms {text!r} has an arm without a name; write A,B:switch=value"
        raise InputError(msg)
    switches: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            msg = f"--arms: {pair!r} of {backend} is not switch=value"
            raise InputError(msg)
        if name in switches:
            msg = f"--arms: {backend} sets {name} twice"
            raise InputError(msg)
        switches[name] = value
    return Arm(backend=backend, switches=switches)
