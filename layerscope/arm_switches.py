"""The switches of an arm, beside those that its backend has."""

from layerscope.plugin import BackendSpec
from layerscope.study import Arm


def check_switches(arm: Arm, backend: BackendSpec) -> list[str]:
    """Why the backend cannot set the switches of `arm`; each reads on from its name."""
    known = {switch.name: switch.values for switch in backend.switches}
    reasons = []
    for name, value in arm.switches.items():
        if name not in known:
            reasons.append(f"has no switch {name}; it has {', '.join(known) or 'none'}")
        elif value not in known[name]:
            allowed = ", ".join(known[name])
            reasons.append(f"needs {name} to be one of {allowed}, not {value}")
    return reasons


def switch_values(arm: Arm, backend: BackendSpec) -> dict[str, str]:
    """A value for every switch of `backend`: the arm's, or its default."""
    return {switch.name: switch.values[0] for switch in backend.switches} | arm.switches
