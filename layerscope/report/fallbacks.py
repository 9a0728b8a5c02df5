"""What an arm did not do: regions that ran elsewhere, switches that change nothing."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from layerscope.report.document import Fact
from layerscope.report.region_names import region_name
from layerscope.run_header import Decision, RunHeader
from layerscope.study import AA_SUFFIX


@dataclass(frozen=True, slots=True)
class RanNothing:
    """An arm that ran nothing of its own: another backend under its name."""

    backends: tuple[str, ...]
    """Those that ran its regions."""

    told: str
    """What it is, read on from the arm's name."""


def ran_nothing(header: RunHeader) -> dict[str, RanNothing]:
    """Every arm of which all regions ran on other backends than its own.

    The A/A arm is one where the arm it repeats is.
    """
    found = {}
    for arm in header.study.all_arms:
        decisions = _decisions(header, arm.name)
        if decisions and all(each.backend != arm.backend for each in decisions):
            backends = tuple(dict.fromkeys(each.backend for each in decisions))
            reasons = dict.fromkeys(each.reason for each in decisions)
            count = len(decisions)
            regions = f"all {count} regions" if count > 1 else "its one region"
            told = (
                f"ran nothing of its own, {regions} ran on {' and '.join(backends)} "
                f"({'; '.join(reasons)})"
            )
            found[arm.name] = RanNothing(backends, told)
    return found


def no_gain_headline(arm: str, found: RanNothing, against: str) -> Fact:
    """In the place of a change, which would be the fallback's."""
    return Fact(f"{arm} {against}", f"no gain is claimed: it {found.told}")


def own_regions(header: RunHeader, arm: str) -> str | None:
    """How many of its regions an arm ran itself; None where nobody decided on them."""
    decisions = _decisions(header, arm)
    if not decisions:
        return None
    backends = {each.name: each.backend for each in header.study.all_arms}
    own = sum(each.backend == backends[arm] for each in decisions)
    return f"{own or 'none'} of {len(decisions)}"


def fallback_notes(header: RunHeader) -> Iterator[str]:
    """Every region that its arm's backend did not run, or that is not told apart.

    Of arms that are compared: those of switches and stamps leave what these leave.
    """
    nothing = ran_nothing(header)
    for arm, each in nothing.items():
        if not arm.endswith(AA_SUFFIX):
            yield f"{arm} {each.told}"
    told = {arm.name for arm in header.study.arms} - {*nothing}
    for decision in header.decisions:
        if decision.reason and decision.arm in told:
            yield (
                f"{decision.arm}: {region_name(decision.region)} ran on "
                f"{decision.backend} ({decision.reason})"
            )


def idle_switch_notes(header: RunHeader, arms: Collection[str]) -> Iterator[str]:
    """Of each of `arms`: its switches that change nothing, at whatever values.

    Not of arms that ran nothing of their own, whose every switch does; and a switch of
    the other problem only where the arm sets it.
    """
    nothing = ran_nothing(header)
    for arm in header.study.arms:
        if arm.name not in arms or arm.name in nothing:
            continue
        by_reason: dict[str, list[str]] = {}
        for each in header.idle_switches:
            is_told = not each.of_other or each.switch in arm.switches
            if is_told and each.backend == arm.backend:
                by_reason.setdefault(each.reason, []).append(each.switch)
        for reason, switches in by_reason.items():
            verb = "changes" if len(switches) == 1 else "change"
            names = " and ".join(filter(None, (", ".join(switches[:-1]), switches[-1])))
            yield f"{arm.name}: {names} {verb} nothing here: {reason}"


def _decisions(header: RunHeader, arm: str) -> list[Decision]:
    name = arm.removesuffix(AA_SUFFIX)
    return [each for each in header.decisions if each.arm == name]
