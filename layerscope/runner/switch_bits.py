"""Whether switches keep the bits of outputs, where they say that they do."""

from collections.abc import Iterator

from torch import Tensor

from layerscope.errors import BackendError
from layerscope.run_header import BitsCheck
from layerscope.runner.bench import Bench
from layerscope.runner.outputs import kept, why_other
from layerscope.runner.waits import refuse_given_up
from layerscope.switches import SwitchArms, TakenApart


def check_bits(bench: Bench) -> list[BitsCheck]:
    """Compare outputs with and without every switch that the study tells apart.

    Each arm runs every pass of the same step once, on poisoned memory, and its outputs
    are compared bit for bit: with the switch alone, and with all others beside it.

    Args:
        bench: with its replays captured, and every arm checked.

    Returns:
        One check a pair of arms; none of pairs of which one was left out.

    Raises:
        BackendError: a switch that says it is bitwise is not, or an arm's kernels gave
            up waiting.
    """
    pairs = list(_pairs(bench))
    if not pairs:
        return []
    outputs = _outputs(
        bench, list(dict.fromkeys(arm for *_, ends in pairs for arm in ends))
    )
    checks = []
    for apart, switch, (off, on) in pairs:
        is_equal = not why_other(outputs[off], outputs[on])
        if switch.bitwise and not is_equal:
            msg = (
                f"{apart.backend} is wrong: outputs of {on} are not bit for bit those "
                f"of {off}, and its switch {switch.name} says that they are; nothing "
                "was timed"
            )
            raise BackendError(msg)
        checks.append(
            BitsCheck(
                backend=apart.backend,
                switch=switch.name,
                off=off,
                on=on,
                is_equal=is_equal,
            )
        )
    return checks


def _pairs(bench: Bench) -> Iterator[tuple[TakenApart, SwitchArms, tuple[str, str]]]:
    """The arms that differ by one switch: that without it, and that with it."""
    here = {*bench.arms}
    for apart in bench.study.taken_apart:
        for switch in apart.switches:
            for ends in dict.fromkeys(
                ((apart.off, switch.only), (switch.without, apart.on))
            ):
                if here.issuperset(ends):
                    yield apart, switch, ends


def _outputs(bench: Bench, arms: list[str]) -> dict[str, list[Tensor]]:
    """What every arm gives on the same step."""
    passes, found = bench.study.passes, {}
    bench.restart(hold=len(arms))
    for arm in arms:
        bench.workload.poison()
        bench.player.wait()
        bench.longest(arm).launch()
        bench.next_step()
        bench.player.wait()
        refuse_given_up(bench, arm)
        found[arm] = kept(bench.workload.outputs(arm, passes))
    return found
