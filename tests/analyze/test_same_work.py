from typing import Any

import msgspec
import pytest

from layerscope.analyze.same_work import (
    differences,
    observed_differences,
    refuse_different,
)
from layerscope.errors import InputError
from layerscope.layers.draft_spec import DraftSpec
from layerscope.run_header import RunHeader
from layerscope.study import Arm, CallableSpec
from layerscope.trace_spec import TraceSpec
from tests import handmade
from tests.ingest import paper_runs

ARMS = (Arm(backend="reference"),)


def with_spec(**changes: Any) -> RunHeader:  # noqa: ANN401 (any field of the spec)
    """The hand-made header, with `changes` to its layer."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, **changes)
    return handmade.header(study=msgspec.structs.replace(study, spec=spec))


def with_plan(**changes: Any) -> RunHeader:  # noqa: ANN401 (any field of the study)
    """The hand-made header, with `changes` to its study."""
    return handmade.header(study=msgspec.structs.replace(handmade.study(), **changes))


def test_a_run_differs_in_nothing_from_itself() -> None:
    """Equal headers do equal work."""
    assert differences(handmade.header(), handmade.header()) == []


def test_fields_of_the_layer_are_named_with_both_values() -> None:
    """Rows are told, and what makes them."""
    other = with_spec(requests=2, draft_tokens=3, tp=4, shard_shaped=True)
    assert differences(handmade.header(), other) == [
        "rows: 6 against 8",
        "requests: 1 against 2",
        "draft_tokens: 5 against 3",
        "tp: 1 against 4",
        "shard_shaped: False against True",
    ]


def test_of_another_model_only_the_name_is_told() -> None:
    """Its shapes differ too, which says nothing more."""
    model = msgspec.structs.replace(handmade.model(), name="other", hidden_size=512)
    assert differences(handmade.header(), with_spec(model=model)) == [
        "model.name: paper-moe against other"
    ]


def test_a_shape_that_differs_under_the_same_name_is_told() -> None:
    """A folder may hold a model that was changed and not renamed."""
    model = msgspec.structs.replace(handmade.model(), hidden_size=512)
    assert differences(handmade.header(), with_spec(model=model)) == [
        "model.hidden_size: 256 against 512"
    ]


def test_what_no_pass_takes_time_for_may_differ() -> None:
    """The vocabulary is no part of a layer, nor is a tolerance part of a call."""
    model = msgspec.structs.replace(handmade.model(), vocab_size=1_000)
    assert differences(handmade.header(), with_spec(model=model)) == []
    calls = [
        with_plan(spec=CallableSpec(inputs=("float32 [6]",), tolerance=tolerance))
        for tolerance in (0.1, 0.2)
    ]
    assert differences(*calls) == []


def test_the_plan_may_differ_in_counts_only() -> None:
    """Seed, steps and lengths fix routing and what a cache holds; counts do not."""
    counts = with_plan(samples=1_600, captures=5, time_budget_s=20.0, arms=ARMS)
    assert differences(handmade.header(), counts) == []
    work = with_plan(seed=1, steps=8, lengths=(4, 8))
    assert differences(handmade.header(), work) == [
        "seed: 0 against 1",
        "steps: 32 against 8",
        "lengths: 8, 16, 24 against 4, 8",
    ]


def test_of_other_things_only_the_kind_is_told() -> None:
    """A layer has no field in common with callables that would mean the same."""
    other = with_plan(spec=CallableSpec(inputs=(), tolerance=0.1))
    assert differences(handmade.header(), other) == ["type: layer against callables"]


def test_drafts_and_callables_have_fields_of_their_own() -> None:
    """A draft names its model and vocabulary, callables their inputs and regions."""
    drafts = [
        with_plan(spec=DraftSpec(model="paper-moe", vocab_size=size, tokens=tokens))
        for size, tokens in ((1_000, 5), (2_000, 3))
    ]
    assert differences(*drafts) == [
        "vocab_size: 1000 against 2000",
        "tokens: 5 against 3",
    ]
    calls = [
        with_plan(spec=CallableSpec(inputs=inputs, regions=regions, tolerance=0.1))
        for inputs, regions in (((), {}), (("float32 [6]",), {"mlp": ["gate", "up"]}))
    ]
    assert differences(*calls) == [
        "inputs: none against float32 [6]",
        "regions: none against mlp = gate, up",
    ]


def test_machines_are_told_apart() -> None:
    """The fields of the environment that must agree come last."""
    machine = handmade.environment()
    device = msgspec.structs.replace(machine.device, driver="590.2", index=1)
    other = with_spec(context=1_024)
    other.environment = msgspec.structs.replace(machine, device=device)
    assert differences(handmade.header(), other) == [
        "context: 512 against 1024",
        "device.driver: 580.1 against 590.2",
    ]


def test_a_refusal_names_every_field_and_what_to_do() -> None:
    """One line; runs that do not differ pass."""
    refuse_different(handmade.header(), handmade.header(), "do something else")
    with pytest.raises(InputError) as caught:
        refuse_different(
            handmade.header(), with_spec(context=1_024, tp=2), "do something else"
        )
    assert str(caught.value) == (
        "the runs differ in work or machine: context: 512 against 1024; tp: 1 against "
        "2; do something else"
    )


def test_traces_are_held_against_each_other_by_what_they_tell() -> None:
    """Kinds of steps, layers, and what both say of the machine."""
    base, other = paper_runs.run("a").header, paper_runs.run("b").header
    assert observed_differences(base, other, [("decode", "decode")]) == []
    other.environment = msgspec.structs.replace(
        other.environment,
        device=msgspec.structs.replace(other.environment.device, name="", type="hip"),
    )
    assert observed_differences(base, other, [("decode", "prefill")]) == [
        "steps: decode against prefill",
        "layers of decode: 4 against 3",
        "device.type: cuda against hip",
    ]


def test_layers_of_steps_that_are_cut() -> None:
    """Where no step of an arm is whole, nobody knows how many layers one has."""
    base, other = paper_runs.run("a").header, paper_runs.run("b").header
    spec = other.study.spec
    assert isinstance(spec, TraceSpec)
    for cut, expected in (([0], ["layers of decode: 4 against 9"]), ([0, 2], [])):
        steps = tuple(
            msgspec.structs.replace(each, layers=9, cut_steps=cut)
            for each in spec.steps
        )
        found = msgspec.structs.replace(spec, steps=steps)
        other.study = msgspec.structs.replace(other.study, spec=found)
        assert observed_differences(base, other, [("decode", "decode")]) == expected


def test_a_trace_against_a_measured_layer() -> None:
    """The model's layers count; drivers and packages a trace does not tell."""
    traced = paper_runs.run().header
    assert observed_differences(handmade.header(), traced, [("fused", "decode")]) == [
        "layers of fused: 2 against 4"
    ]
    callables = CallableSpec(inputs=(), tolerance=1e-3)
    study = msgspec.structs.replace(handmade.study(), spec=callables)
    header = handmade.header(study=study)
    assert observed_differences(header, traced, [("fused", "decode")]) == []
