from dataclasses import replace

import msgspec
import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.doses import Rise
from layerscope.analyze.switches import ArmOfSwitches, Mechanisms, Turned, mechanisms
from layerscope.analyze.verdicts import Comparison, Verdict
from layerscope.experiment import SERIAL, Experiment
from layerscope.run_header import Trial
from layerscope.schema import EDGES, empty
from layerscope.switches import SwitchArms, TakenApart
from tests import handmade, switched
from tests.switched import OFF, ON, ONLY_A, ONLY_B

FLOOR_NS = 10.0


def exactly(value: float, samples: int = 6) -> Estimate:
    """An estimate without noise."""
    return Estimate(value, value, value, samples, float(samples))


def found(**changes: object) -> Mechanisms:
    """What the run says of its one backend."""
    (one,) = mechanisms(switched.run(**changes), FLOOR_NS)
    return one


def change(turned: Turned) -> tuple[float, Verdict]:
    """The value of a change, and its verdict."""
    assert turned.change is not None
    return turned.change.difference.value, turned.change.verdict


def test_a_switch_is_told_alone_and_beside_all_others() -> None:
    """Negative where it makes a pass faster, on both sides."""
    a, b = found().effects
    assert change(a.added) == (-2_000, Verdict.FASTER)
    assert change(a.last) == (-3_000, Verdict.FASTER)
    assert change(b.added) == (-3_000, Verdict.FASTER)
    assert change(b.last) == (-4_000, Verdict.FASTER)
    assert (a.last.off, a.last.on) == (ONLY_B, ON)


def test_what_two_builds_differ_by_is_no_difference() -> None:
    """A second build that is 2.5 µs slower hides a change of 2 µs, and none of 3 µs."""
    again = f"{OFF} (built again)"
    run = switched.run(
        study=msgspec.structs.replace(
            switched.study(),
            taken_apart=(msgspec.structs.replace(switched.APART, rebuilt=again),),
        )
    )
    slower = switched.graph(again, Experiment(), 42_500)
    run = replace(run, samples=pl.concat([run.samples, slower]))
    (one,) = mechanisms(run, FLOOR_NS)
    a, b = one.effects
    assert one.builds == exactly(2_500.0)
    assert change(a.added) == (-2_000, Verdict.NO_DIFFERENCE)
    assert change(b.added) == (-3_000, Verdict.FASTER)
    assert [arm.arm for arm in one.arms][:2] == [OFF, again]
    assert found().builds is None


def test_serial_twins_are_paired_like_the_arms() -> None:
    """A switch that only moves work makes no difference there; another one may."""
    a, b = found().effects
    same = Comparison(
        exactly(0.0), 0.0, Verdict.NO_DIFFERENCE, "the interval includes zero"
    )
    assert (a.added.serial, a.last.serial) == (same, same)
    assert b.added.serial == Comparison(
        exactly(-1_000.0), -1_000 / 45_000, Verdict.FASTER, ""
    )


def test_a_graph_that_is_serial_is_its_own_twin_and_a_refused_one_is_none() -> None:
    """The captured rows stand for the twin's; nothing stands for what was refused."""
    other = {OFF: "same", ONLY_A: "same", ONLY_B: "refused", ON: "measured"}
    trials = [
        Trial(arm=arm, experiment=SERIAL, outcome=outcome)  # type: ignore[arg-type]
        for arm, outcome in other.items()
    ]
    a, _ = found(trials=trials).effects
    assert a.added.serial is not None
    assert a.added.serial.difference.value == -2_000
    assert a.last.serial is None
    assert a.doses is None


def test_bits_are_those_of_the_same_two_arms() -> None:
    """Of a switch that says nothing of them too."""
    a, b = found().effects
    assert (a.added.is_equal, a.last.is_equal) == (True, True)
    assert (b.added.is_equal, b.last.is_equal) == (False, True)


def test_the_sum_of_single_effects_is_held_against_all_together() -> None:
    """−6 µs together, −2 and −3 µs alone: −1 µs is what they do to each other."""
    together = found().together
    assert together is not None
    assert together.together == exactly(-6_000)
    assert together.one_by_one == exactly(-5_000)
    assert together.beyond == exactly(-1_000)


def test_every_arm_is_told_with_kernels_and_programmatic_edges() -> None:
    """In the order all off, alone, all but one, all on; each once."""
    arms = found().arms
    assert [arm.arm for arm in arms] == [OFF, ONLY_A, ONLY_B, ON]
    assert arms[0] == ArmOfSwitches(
        arm=OFF,
        pass_ns=exactly(40_000),
        change=None,
        kernels=3.0,
        programmatic=0,
        edges=3,
    )
    last = arms[-1]
    assert last.change is not None
    assert last.change.difference == exactly(-6_000)
    assert (last.kernels, last.programmatic, last.edges) == (2.0, 1, 2)


def test_an_arm_that_was_left_out_leaves_the_others() -> None:
    """What needs it is None; the rest is told."""
    run = switched.run()
    left = replace(
        run, samples=run.samples.filter(pl.col("arm") != ONLY_A), edges=empty(EDGES)
    )
    (one,) = mechanisms(left, FLOOR_NS)
    a, b = one.effects
    assert (a.added.change, b.last.change) == (None, None)
    assert change(a.last) == (-3_000, Verdict.FASTER)
    assert one.together is None
    assert [arm.arm for arm in one.arms] == [OFF, ONLY_B, ON]
    assert [arm.edges for arm in one.arms] == [None, None, None]


def test_doses_are_those_of_all_on_and_all_but_the_switch() -> None:
    """A switch that starts nothing early has none."""
    a, b = found().effects
    assert b.doses is None
    assert a.doses is not None
    assert (a.doses.delayed, a.doses.rise) == ("/route", Rise.STAYS)


def test_a_study_that_takes_nothing_apart_has_no_mechanisms() -> None:
    """Nothing is told of its arms beyond the usual."""
    assert mechanisms(switched.run(study=handmade.study()), FLOOR_NS) == ()


def test_an_idle_switch_has_no_effect_and_is_kept_with_its_reason() -> None:
    """The others are told as without it."""
    idle = SwitchArms(name="c", idle="there are no experts")
    apart = msgspec.structs.replace(switched.APART, switches=(switched.A, idle))
    study = msgspec.structs.replace(switched.study(), taken_apart=(apart,))
    one = found(study=study)
    assert [effect.switch.name for effect in one.effects] == ["a"]
    assert one.idle == (idle,)
    assert [arm.arm for arm in one.arms] == [OFF, ONLY_A, ONLY_B, ON]
    assert one.together is None


def test_a_backend_all_of_whose_switches_are_idle_has_no_arms() -> None:
    """Only the reasons."""
    idle = SwitchArms(name="c", idle="there are no experts")
    apart = TakenApart(backend="paper", off="", on="", switches=(idle,))
    study = msgspec.structs.replace(switched.study(), taken_apart=(apart,))
    assert found(study=study) == Mechanisms(
        backend="paper", arms=(), effects=(), together=None, builds=None, idle=(idle,)
    )
