"""Which switches of backends change nothing for what a study measures."""

from collections.abc import Iterable

from layerscope import coverage, registry
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError, describe
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.run_header import IdleSwitch
from layerscope.study import Arm


def idle_switches(
    arms: Iterable[Arm], spec: LayerSpec | DraftSpec, device: DeviceFacts
) -> list[IdleSwitch]:
    """Switches of the backends of `arms` that change nothing for `spec`; no GPU work.

    Raises:
        BackendError: a backend cannot be loaded, or cannot tell.
    """
    found = []
    for name in dict.fromkeys(arm.backend for arm in arms):
        backend = registry.load(name)
        try:
            told = coverage.idle_switches(backend, spec, device)
        except Exception as error:
            # Foreign code: what is wrong with it is told in one line.
            msg = (
                f"backend {name} cannot tell which switches change nothing "
                f"({describe(error)}); tell its author"
            )
            raise BackendError(msg) from error
        of_other = coverage.of_other(backend, spec)
        found += [
            IdleSwitch(
                backend=name, switch=switch, reason=reason, of_other=switch in of_other
            )
            for switch, reason in told.items()
        ]
    return found
