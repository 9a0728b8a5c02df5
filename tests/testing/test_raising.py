"""What the code of a backend raises is told as all else that is wrong with it."""

from typing import Any

import pytest

from layerscope.plugin import BackendSpec, BuildContext, Built, Switch
from layerscope.testing import check_backend
from tests.testing.paper import SPEC, WHERE, nothing, paper


def raising(*_: object) -> Any:  # noqa: ANN401 (never returns)
    """Fail as code with a mistake does."""
    msg = "gate"
    raise KeyError(msg)


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (paper(build=raising), ["build raised KeyError: 'gate'"]),
        (paper(takes=raising), ["plan raised KeyError: 'gate'"]),
        (paper(raising), ["run of attention of pass 0 raised KeyError: 'gate'"]),
        (
            paper(check=raising),
            ["check raised KeyError: 'gate'", "it ran no layer of qwen3_moe"],
        ),
    ],
)
def test_what_a_backend_raises_is_a_failure(
    backend: BackendSpec, found: list[str]
) -> None:
    """A line says where; the traceback that its author needs is chained."""
    place = WHERE.removeprefix("paper on ")
    with pytest.raises(AssertionError) as raised:
        check_backend(backend, specs=[SPEC])
    _, *lines = str(raised.value).partition("\nleft out:")[0].splitlines()
    assert [
        line.removeprefix("- ").removeprefix(WHERE).removeprefix(place)
        for line in lines
    ] == found
    error = raised.value.__cause__
    assert isinstance(error, KeyError)
    assert error.__traceback__ is not None


def test_all_else_is_checked_after_a_backend_raised() -> None:
    """Its draft, other values of its switches, and other layers."""
    switch = Switch(name="fast", values=("no", "yes"), toggles="haste", bitwise=True)

    def build(context: BuildContext) -> Built:
        is_default = context.switches["fast"] == "no"
        return paper(raising if is_default else nothing).build(context)

    backend = paper(build=build, build_draft=raising, switches=(switch,))
    place = WHERE.removeprefix("paper on ")
    with pytest.raises(AssertionError) as raised:
        check_backend(backend, specs=[SPEC, SPEC])
    assert str(raised.value).splitlines()[1:] == [
        f"- {WHERE}run of attention of pass 0 raised KeyError: 'gate'",
        f"- draft of paper after {place}build_draft raised KeyError: 'gate'",
        f"- draft of paper:fast=yes after {place}build_draft raised KeyError: 'gate'",
        f"- {WHERE}run of attention of pass 0 raised KeyError: 'gate'",
        f"- draft of paper after {place}build_draft raised KeyError: 'gate'",
    ]
