from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._dynamo import config
from torch._dynamo.utils import counters

from layerscope.errors import BackendError
from layerscope_torch_compile.compiling import compiled, tensors_of

pytestmark = pytest.mark.usefixtures("_compiler")

ADVICE = "report it, and measure without this arm by naming others in --arms"


class Pair(NamedTuple):
    """Two tensors of a pass."""

    source: Tensor
    target: Tensor


def double(pair: Pair) -> None:
    """A region that can be compiled."""
    pair.target.copy_(2 * pair.source)


def pairs(count: int) -> list[Pair]:
    """As many passes, with sources that differ."""
    return [Pair(torch.full((5,), float(i)), torch.zeros(5)) for i in range(count)]


def test_one_graph_serves_all_passes() -> None:
    """It is compiled once, has run on every pass, and computes what it says."""
    counters.clear()
    calls = pairs(4)
    run = compiled("double", double, calls)
    assert [pair.target.tolist() for pair in calls] == [[2.0 * i] * 5 for i in range(4)]
    calls[3].target.zero_()
    with torch.no_grad():
        run(calls[3])
    assert calls[3].target.tolist() == [6.0] * 5
    assert counters["stats"]["unique_graphs"] == 1


def test_builds_do_not_share_the_number_of_graphs() -> None:
    """A function may be compiled for one problem after another, however many."""
    with config.patch(recompile_limit=1):
        for length in (3, 4, 5):
            calls = [Pair(torch.ones(length), torch.zeros(length))]
            compiled("double", double, calls)
            assert calls[0].target.tolist() == [2.0] * length


def test_a_graph_break_is_refused_with_its_cause() -> None:
    """The error is one line: where, why, and what to do."""

    def breaks(pair: Pair) -> None:
        torch._dynamo.graph_break()
        double(pair)

    with pytest.raises(BackendError) as caught:
        compiled("moe", breaks, pairs(1))
    assert str(caught.value) == (
        "torch_compile: moe is not one graph: Call to `torch._dynamo.graph_break()`; "
        + ADVICE
    )


def test_passes_of_other_shapes_are_refused() -> None:
    """A pass that would be compiled anew would be compiled at capture."""
    calls = [*pairs(1), Pair(torch.ones(6), torch.zeros(6))]
    with pytest.raises(BackendError) as caught:
        compiled("moe", double, calls)
    assert str(caught.value) == (
        f"torch_compile: moe is not one graph for all passes; {ADVICE}"
    )


def test_a_compiler_that_is_missed_late_is_one_line() -> None:
    """What the compiler raises is told by its first line, not by its traceback."""

    def other(pair: Pair) -> None:  # not in the caches
        pair.target.copy_(3 * pair.source - 7)

    with (
        inductor_config().patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(BackendError) as caught,
    ):
        compiled("moe", other, pairs(1))
    message = str(caught.value)
    assert message.startswith("torch_compile: moe could not be compiled: ")
    assert "No working C++ compiler found" in message
    assert message.endswith(ADVICE)
    assert "\n" not in message


def test_unaligned_passes_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph made for aligned tensors would copy the others before it starts."""
    order: list[int] = []

    def note(function: object, **_: object) -> object:
        del function
        return lambda pair: order.append(int(pair.source[0]))

    monkeypatch.setattr(torch, "compile", note)
    values = torch.arange(8.0)
    views = [Pair(values[i : i + 1], torch.zeros(1)) for i in (0, 1, 4, 6)]
    compiled("double", double, views)
    assert order == [1, 6, 0, 4]


def test_only_plain_functions_are_compiled() -> None:
    """Whatever else is called is no region of this backend."""
    with pytest.raises(TypeError, match="moe is no plain function"):
        compiled("moe", partial(double), pairs(1))


def test_options_stay_with_the_functions() -> None:
    """Compiling leaves the compiler's settings for others as they were."""
    before = inductor_config().save_config()
    compiled("double", double, pairs(1))
    assert inductor_config().save_config() == before


def inductor_config() -> Any:  # noqa: ANN401 (a module without stubs)
    """The compiler's settings; importing them takes seconds."""
    return import_module("torch._inductor.config")


def test_tensors_are_found_in_nested_tuples() -> None:
    """Named tuples, plain ones and None."""
    pair = pairs(1)[0]
    other = torch.zeros(1)
    found = list(tensors_of((pair, (other, None))))
    assert [id(each) for each in found] == [id(pair.source), id(pair.target), id(other)]
