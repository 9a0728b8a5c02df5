from dataclasses import replace
from typing import Any

import pytest

from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import DType, Family
from layerscope.plugin import Numerics, Requires, Switch
from layerscope.plugin_fields import faults
from layerscope.regions import Region


def broken(**fields: Any) -> list[str]:  # noqa: ANN401 (of any wrong type)
    """What is wrong with the reference with other fields."""
    return faults(replace(BACKEND, **fields))


def switch(**fields: Any) -> Switch:  # noqa: ANN401 (of any wrong type)
    """A switch with other fields."""
    return replace(Switch(name="pdl", values=("on",), toggles="launch"), **fields)


def test_a_sound_declaration_has_no_faults() -> None:
    """Lists and sets hold what tuples hold, and names may be plain text."""
    assert faults(BACKEND) == []
    requires: Any = Requires(dtypes=[DType.FLOAT32], tp_sizes={1, 2}, max_rows=8)  # type: ignore[arg-type]
    assert broken(covers={"llama": ["mlp"]}, requires=requires) == []


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"name": None}, "name is None, and must be text"),
        ({"api_version": "1"}, "api_version is '1', and must be an integer"),
        ({"summary": b"x"}, "summary is b'x', and must be text"),
        (
            {"covers": {Family.LLAMA: "mlp"}},
            (
                "covers is {<Family.LLAMA: 'llama'>: 'mlp'}, and must be a mapping of "
                "families to tuples of regions"
            ),
        ),
        ({"build": None}, "build is None, and must be a function"),
        ({"build_draft": 3}, "build_draft is 3, and must be a function or None"),
        ({"check": "no"}, "check is 'no', and must be a function or None"),
        ({"declines": {}}, "declines is {}, and must be a function or None"),
        ({"requires": None}, "requires is None, and must be a Requires"),
        ({"numerics": 1e-2}, "numerics is 0.01, and must be a Numerics"),
        ({"switches": ("pdl",)}, "switches is ('pdl',), and must be a tuple of Switch"),
        ({"waits": "all"}, "waits is 'all', and must be a tuple of names"),
        ({"skippable": (1,)}, "skippable is (1,), and must be a tuple of names"),
        (
            {"pdl_safe": {Region.MOE: 1}},
            "pdl_safe is {<Region.MOE: 'moe'>: 1}, and must be a tuple of names",
        ),
        (
            {"requires": Requires(packages="triton")},  # type: ignore[arg-type]
            "requires.packages is 'triton', and must be a tuple of names",
        ),
        (
            {"requires": Requires(tp_sizes=(True,), max_rows="8")},  # type: ignore[arg-type]
            "requires.tp_sizes is (True,), and must be a tuple of integers",
        ),
        (
            {"numerics": Numerics(float32="tight")},  # type: ignore[arg-type]
            "numerics.float32 is 'tight', and must be a number",
        ),
        (
            {"switches": (switch(values=()),)},
            (
                "of switch pdl: values is (), and must be a tuple of names, the "
                "default first"
            ),
        ),
        (
            {"switches": (switch(kind="haste"),)},
            (
                "of switch pdl: kind is 'haste', and must be one of overlap, fusion, "
                "kernel, other"
            ),
        ),
        (
            {"switches": (switch(starts_early="gate_up"),)},
            "of switch pdl: starts_early is 'gate_up', and must be a tuple of names",
        ),
        (
            {"switches": (switch(off=None),)},
            "of switch pdl: off is None, and must be text",
        ),
        (
            {"switches": (switch(of="both"),)},
            (
                "of switch pdl: of is 'both', and must be layer, draft, or empty where "
                "it may change both"
            ),
        ),
    ],
)
def test_a_field_of_a_wrong_type_is_told_with_what_it_must_be(
    fields: dict[str, Any], fault: str
) -> None:
    """A missing comma makes text of a tuple, and text holds many names."""
    assert broken(**fields)[0] == fault


def test_all_faults_come_at_once() -> None:
    """Whoever mends one does not meet the next only then."""
    requires: Any = Requires(processors=None, max_rows=1.5)  # type: ignore[arg-type]
    found = broken(summary=None, requires=requires, switches=[switch(toggles=0)])
    assert [fault.partition(" is ")[0] for fault in found] == [
        "summary",
        "requires.max_rows",
        "requires.processors",
        "of switch pdl: toggles",
    ]


def test_a_fault_is_one_line() -> None:
    """Whatever a value prints."""

    class Poem:
        def __repr__(self) -> str:
            return "roses\nviolets"

    assert broken(build=Poem()) == ["build is roses, and must be a function"]
