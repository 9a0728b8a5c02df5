import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread

import pytest
import torch

from layerscope.regions import (
    Mark,
    Region,
    in_order,
    layer_pass,
    observing,
    region,
    role,
)
from layerscope.schema import UNASSIGNED

ROOT = Path(__file__).resolve().parent.parent


class Diary:
    """An observer that writes down what it is told."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lines: list[str] = []
        self.marks: list[Mark] = []

    def opened(self, mark: Mark) -> None:
        """Write a plus."""
        self.marks.append(mark)
        self.lines.append(f"{self.name}+{mark.name}")

    def closed(self, mark: Mark) -> None:
        """Write a minus."""
        self.lines.append(f"{self.name}-{mark.name}")


def test_labels_are_read_back_as_the_marks_they_were_made_from() -> None:
    """A mark's label gives the mark again; the text of others gives None."""
    assert Mark("region", "moe").label == "layerscope:region:moe"
    assert Mark.from_label("layerscope:region:moe") == Mark("region", "moe")
    assert Mark.from_label("layerscope:arm:a:b=c") == Mark("arm", "a:b=c")
    assert Mark.from_label("aten::add") is None


def test_observers_see_marks_open_and_close_in_nesting_order() -> None:
    """Passes and regions are told as they open, and closed in reverse."""
    diary = Diary()
    with observing(diary):
        with layer_pass(3):
            with region(Region.ATTENTION):
                pass
            with region("moe"):
                pass
        with region(Region.OTHER):
            pass
    assert diary.lines == [
        *("+3", "+attention", "-attention", "+moe", "-moe", "-3"),
        *("+other", "-other"),
    ]


def test_observers_are_told_of_the_kind_of_a_mark() -> None:
    """A pass and a region of the same name would still be told apart."""
    diary = Diary()
    with observing(diary), layer_pass(0), region(Region.MLP):
        pass
    assert diary.marks == [Mark("pass", "0"), Mark("region", "mlp")]


def test_inner_observers_join_outer_ones_and_leave_first() -> None:
    """Both see a mark and close in reverse; after the block only the outer does."""
    lines: list[str] = []
    outer, inner = Diary("outer"), Diary("inner")
    outer.lines = inner.lines = lines
    with observing(outer):
        with observing(inner), region(Region.MOE):
            pass
        with region(Region.MLP):
            pass
    assert lines == [
        *("outer+moe", "inner+moe", "inner-moe", "outer-moe"),
        *("outer+mlp", "outer-mlp"),
    ]


def test_marks_close_when_the_block_fails() -> None:
    """An error inside a region closes its mark and goes on; the observer leaves too."""
    diary = Diary()

    def fail() -> None:
        with observing(diary), region(Region.MOE):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with region(Region.MLP):
        pass
    assert diary.lines == ["+moe", "-moe"]


def test_other_threads_are_not_observed() -> None:
    """An observer belongs to the thread that installed it."""
    diary = Diary()

    def elsewhere() -> None:
        with region(Region.MOE):
            pass

    with observing(diary):
        thread = Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert diary.lines == []


def test_nothing_is_made_when_no_one_observes() -> None:
    """Unobserved marks are all the same empty context, made once."""
    first = region(Region.MOE)
    assert first is region("gather") is role("gate_up") is layer_pass(7)
    with first, first:
        pass


@pytest.mark.filterwarnings("ignore")  # torch warns of itself when it compiles
def test_compiled_code_has_no_marks() -> None:
    """A marker breaks no graph, costs no second compilation, and tells nobody."""
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    @torch.compile(backend=keep, fullgraph=True)
    def marked(x: torch.Tensor) -> torch.Tensor:
        with region("moe"), role("gate_up"):
            y = x.sin()
        return y.cos()

    diary, x = Diary(), torch.ones(3)
    for _ in range(2):
        assert marked(x).equal(x.sin().cos())
        with observing(diary):
            assert marked(x).equal(x.sin().cos())
    assert (len(graphs), diary.lines) == (1, [])


def test_markers_load_no_torch() -> None:
    """Code that marks itself can run where torch is not installed."""
    code = (
        "import sys\nfrom layerscope import region\nwith region('moe'):\n    pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_foreign_code_names_regions_of_its_own() -> None:
    """Any word of letters, digits and underscores is a region, and told as text."""
    diary = Diary()
    with observing(diary):
        for name in ("gather", "Block_2", "x", Region.DRAFT):
            with region(name):
                pass
    assert diary.marks == [
        Mark("region", name) for name in ("gather", "Block_2", "x", "draft")
    ]
    assert {type(mark.name) for mark in diary.marks} == {str}


def test_roles_are_told_within_the_region_they_belong_to() -> None:
    """A role opens after its region and closes before it; roles nest too."""
    diary = Diary()
    with observing(diary), layer_pass(1), region(Region.MOE):
        with role("gate_up"), role("split_2"):
            pass
        with role("combine"):
            pass
    assert diary.marks == [
        Mark("pass", "1"),
        Mark("region", "moe"),
        Mark("role", "gate_up"),
        Mark("role", "split_2"),
        Mark("role", "combine"),
    ]
    assert diary.lines == [
        *("+1", "+moe", "+gate_up", "+split_2", "-split_2", "-gate_up"),
        *("+combine", "-combine", "-moe", "-1"),
    ]


@pytest.mark.parametrize("mark", [region, role])
@pytest.mark.parametrize(
    "name", ["", "2nd", "_x", "gate up", "gate-up", "a:b", "m\u00f6e", "moe\n"]
)
def test_bad_names_are_refused_where_anybody_observes(
    mark: Callable[[str], AbstractContextManager[None]], name: str
) -> None:
    """A name that no label could carry is an error under an observer, else not read."""
    with mark(name):
        pass
    diary = Diary()
    what = f"{name!r} is no name of a {mark.__name__}"
    with observing(diary), pytest.raises(ValueError, match=re.escape(what)):
        mark(name)
    assert diary.marks == []


def test_regions_come_in_the_order_of_a_layer() -> None:
    """Once each: as a layer runs them, then foreign ones by name, ``other`` last.

    After that stands only what a trace leaves unassigned.
    """
    given = [UNASSIGNED, "other", "b_mine", "moe", "a_mine", "attention", "moe"]
    ordered = ["attention", "moe", "a_mine", "b_mine", "other", UNASSIGNED]
    assert in_order(given) == ordered
