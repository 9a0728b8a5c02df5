from functools import partial

import pytest
import torch
from torch import nn

from layerscope.errors import InputError
from layerscope.regions import Mark, observing, region
from layerscope.runner.foreign.module_regions import (
    marking,
    modules_of,
    named_parts,
    root_of,
)

X = torch.ones(2, 4)


class Diary:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def opened(self, mark: Mark) -> None:
        """Write a plus."""
        self.lines.append(f"+{mark.name}")

    def closed(self, mark: Mark) -> None:
        """Write a minus."""
        self.lines.append(f"-{mark.name}")


class Block(nn.Module):
    """Attention, and a feed-forward part of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.Linear(4, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both, one after the other."""
        return torch.as_tensor(self.mlp(self.self_attn(x)))


def hooks(module: nn.Module) -> int:
    """How many hooks there are on `module` and all in it."""
    return sum(
        len(each._forward_hooks) + len(each._forward_pre_hooks)
        for each in module.modules()
    )


def lines(module: nn.Module, patterns: dict[str, list[str]]) -> list[str]:
    """What an observer of one call sees."""
    diary = Diary()
    with observing(diary), marking(modules_of(module, patterns)):
        module(X)
    return diary.lines


def test_modules_are_told_from_callables() -> None:
    """A module, a method of one, and either with some arguments bound."""
    block = Block()
    for function in (block, block.forward, partial(block), partial(block.forward, X)):
        assert root_of(function) is block
    assert root_of(torch.relu) is None
    assert root_of(lambda: block) is None


def test_modules_of_a_region_are_marked_when_they_run() -> None:
    """Names are shell patterns of whole names, and ``*`` matches dots too."""
    block = Block()
    assert lines(block, {"attention": ["self_attn"], "mlp": ["mlp"]}) == [
        *("+attention", "-attention", "+mlp", "-mlp"),
    ]
    assert lines(block, {"a": ["self*"], "b": ["mlp.?"]}) == [
        *("+a", "-a", "+b", "-b", "+b", "-b"),
    ]
    model = nn.Sequential(block)
    assert lines(model, {"mlp": ["*.mlp"]}) == ["+mlp", "-mlp"]
    assert lines(model, {"all": [""]}) == ["+all", "-all"]


def test_inner_modules_open_inside_outer_ones() -> None:
    """A region within another takes what it runs from it."""
    assert lines(Block(), {"mlp": ["mlp"], "silu": ["mlp.1"]}) == [
        *("+mlp", "+silu", "-silu", "-mlp"),
    ]


def test_a_region_closes_when_its_module_fails() -> None:
    """The error goes on; nothing stays open and no hook stays."""
    block, diary = Block(), Diary()
    marks = marking(modules_of(block, {"attention": ["self_attn"]}))
    with observing(diary), marks, pytest.raises(RuntimeError):
        block(torch.ones(2, 3))
    with observing(diary):
        block(X)
    assert diary.lines == ["+attention", "-attention"]
    assert hooks(block) == 0


def test_hooks_of_the_module_itself_belong_to_it() -> None:
    """What other hooks do before and after is inside the region."""
    block, diary = Block(), Diary()

    def note(*_: object) -> None:
        with region("inner"):
            pass

    block.self_attn.register_forward_pre_hook(note)
    with observing(diary), marking(modules_of(block, {"attention": ["self_attn"]})):
        block.self_attn.register_forward_hook(note)
        block(X)
    assert diary.lines[:4] == ["+attention", "+inner", "-inner", "-attention"]


def test_hooks_are_there_for_the_block_only() -> None:
    """Before and after it the module is as the user made it."""
    block = Block()
    found = modules_of(block, {"attention": ["self_attn"], "mlp": ["mlp"]})
    assert hooks(block) == 0
    with marking(found):
        assert hooks(block) == 4
    assert hooks(block) == 0


def test_a_module_of_two_regions_is_refused() -> None:
    """By one name or by two of a module that is used twice."""
    with pytest.raises(InputError) as caught:
        modules_of(Block(), {"mlp": ["mlp"], "rest": ["m*"]})
    assert str(caught.value) == (
        "regions: module mlp belongs to mlp and rest; keep one"
    )
    shared = nn.Linear(4, 4)
    twice = nn.ModuleDict({"first": shared, "second": shared})
    with pytest.raises(InputError, match="belongs to a and b; keep one"):
        modules_of(twice, {"a": ["first"], "b": ["second"]})
    assert modules_of(twice, {"b": ["second", "first"]}) == {"b": [shared]}


@pytest.mark.filterwarnings("ignore")  # torch warns of itself when it compiles
def test_compiled_modules_are_marked_from_outside_only() -> None:
    """Hooks within compiled code would change what runs; one around it does not."""
    block = Block()
    block.mlp = torch.compile(block.mlp, backend="eager")  # type: ignore[assignment]
    assert [name for name, _ in named_parts(block)] == ["", "self_attn", "mlp"]
    assert lines(block, {"mlp": ["mlp*"]}) == ["+mlp", "-mlp"]
    whole = root_of(torch.compile(Block(), backend="eager"))
    assert whole is not None
    assert [name for name, _ in named_parts(whole)] == [""]
    in_place = nn.Sequential(Block(), nn.SiLU())
    in_place[0].compile(backend="eager")
    assert [name for name, _ in named_parts(in_place)] == ["", "1"]
