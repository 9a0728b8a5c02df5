from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.experiment import CAPTURED, SERIAL, Experiment
from layerscope.layers.spec import LayerSpec
from layerscope.study import MIN_ROUNDS, Arm, Slot, Study, order
from layerscope.trace_spec import TraceSpec, TraceSteps
from tests import handmade

A, B = Arm(backend="a"), Arm(backend="b")


def study(seed: int = 0, samples: int = 800, captures: int = 3) -> Study:
    """Two arms, two lengths."""
    return Study(
        spec=LayerSpec(model=handmade.model()),
        arms=(A, B),
        seed=seed,
        samples=samples,
        lengths=(2, 4),
        captures=captures,
    )


GRAPHS = (("a", CAPTURED), ("b", CAPTURED), ("b", "serial"))


def rounds(of: Study, capture: int, count: int) -> list[list[Slot]]:
    """The first rounds of a capture."""
    return list(islice(order(of, GRAPHS, str(capture)), count))


def test_arms_are_named_by_backend_switches_and_whether_again() -> None:
    """The name is what reports show and what samples are labelled with."""
    arm = Arm(backend="fused", switches={"pdl": "stock", "early": "off"})
    assert arm.name == "fused:pdl=stock:early=off"
    again = Arm(backend="fused", switches={"pdl": "stock"}, again=True)
    assert again.name == "fused:pdl=stock (A/A)"


def test_an_arm_with_many_switches_may_be_called_otherwise() -> None:
    """Its label is its name, also of the second capture."""
    arm = Arm(backend="fused", switches={"pdl": "off", "early": "off"}, label="bare")
    assert arm.name == "bare"
    assert msgspec.structs.replace(arm, again=True).name == "bare (A/A)"


def test_arms_of_switches_are_built_beside_those_that_are_compared() -> None:
    """None of them comes again, and a study may go on without any."""
    only = Arm(backend="a", switches={"x": "off"})
    of = msgspec.structs.replace(study(), switch_arms=(only,))
    assert of.built_arms == (A, B, only)
    assert of.all_arms == study().all_arms
    kept = of.keeping({"b", "a:x=off"})
    assert kept == msgspec.structs.replace(of, arms=(B,))
    assert of.keeping({"a", "b"}) == study()


def test_arms_of_switches_are_asked_for_their_own_experiments_only() -> None:
    """Those that are compared are asked for all, and each once."""
    only = Arm(backend="a", switches={"x": "off"})
    delayed = Experiment(delay="/down")
    of = msgspec.structs.replace(
        study(),
        experiments=(SERIAL,),
        switch_arms=(only,),
        switch_experiments={"a": (SERIAL, delayed), "a:x=off": (delayed,)},
    )
    assert of.asked("a") == (SERIAL, delayed)
    assert of.asked("b") == (SERIAL,)
    assert of.asked("a:x=off") == (delayed,)


def test_the_first_arm_comes_again_last() -> None:
    """A/A is the base with its switches, captured a second time."""
    base = Arm(backend="a", switches={"x": "1"})
    spec = LayerSpec(model=handmade.model())
    assert Study(spec=spec, arms=(base, B)).all_arms == (
        base,
        B,
        Arm(backend="a", switches={"x": "1"}, again=True),
    )


def test_as_many_passes_must_exist_as_the_longest_replay_runs() -> None:
    """Shorter replays run the first of the same passes."""
    assert study().passes == 4


@pytest.mark.parametrize(
    ("samples", "captures", "expected"),
    [(800, 3, 45), (6 * 3 * 17, 3, 17), (6 * 3 * 17 + 1, 3, 18), (601, 1, 101)],
)
def test_rounds_are_the_fewest_that_make_the_samples(
    samples: int, captures: int, expected: int
) -> None:
    """One round of one capture makes 2 + 4 passes of every arm."""
    assert study(samples=samples, captures=captures).rounds == expected


@given(samples=st.integers(1, 5000), captures=st.integers(1, 9))
def test_samples_are_reached_and_not_exceeded_by_a_round(
    samples: int, captures: int
) -> None:
    """Unless a capture would have too few rounds to say anything about its noise."""
    rounds = study(samples=samples, captures=captures).rounds
    assert rounds >= MIN_ROUNDS
    assert 6 * captures * rounds >= samples
    assert rounds == MIN_ROUNDS or 6 * captures * (rounds - 1) < samples


@given(seed=st.integers(), capture=st.integers(0, 9))
def test_every_graph_and_length_comes_once_a_round(seed: int, capture: int) -> None:
    """Whatever the seed; positions count from 0."""
    cells = {(*graph, passes) for graph in GRAPHS for passes in (2, 4)}
    for slots in rounds(study(seed), capture, 3):
        assert {(slot.arm, slot.experiment, slot.passes) for slot in slots} == cells
        assert [slot.position for slot in slots] == list(range(6))


def test_the_order_follows_from_seed_and_capture_alone() -> None:
    """The same again for the same; another for another seed or capture."""
    first = rounds(study(), 0, 4)
    assert rounds(study(), 0, 4) == first
    assert rounds(study(samples=8, captures=1), 0, 4) == first
    assert rounds(study(seed=1), 0, 4) != first
    assert rounds(study(), 1, 4) != first


def test_every_round_is_shuffled_anew() -> None:
    """No arm keeps its place: over many rounds each cell has been everywhere."""
    seen = {
        (slot.arm, slot.experiment, slot.passes, slot.position)
        for slots in rounds(study(), 0, 200)
        for slot in slots
    }
    assert len(seen) == 6 * 6


def test_a_trace_has_no_second_capture() -> None:
    """Nobody repeated it, so there is no A/A arm."""
    steps = (
        TraceSteps(arm="decode", kind="decode", steps=2, layers=4),
        TraceSteps(arm="prefill", kind="prefill", steps=1, layers=0),
    )
    spec = TraceSpec(files=("x.json",), format="Kineto JSON", steps=steps)
    traced = Study(spec=spec, arms=(A, B))
    assert traced.all_arms == (A, B)
    assert [each.name for each in study().all_arms] == ["a", "b", "a (A/A)"]


def test_what_an_arm_of_a_trace_stands_for() -> None:
    """Its steps, and whether a pass is a layer or a whole step."""
    steps = (
        TraceSteps(arm="decode", kind="decode", steps=2, layers=4),
        TraceSteps(arm="step", kind="unknown", steps=1, layers=0),
    )
    spec = TraceSpec(files=("x.json",), format="Kineto JSON", steps=steps)
    assert spec.steps_of("step") is steps[1]
    assert [each.unit for each in steps] == ["layer", "step"]
    with pytest.raises(KeyError):
        spec.steps_of("verify")
