import pytest
import torch
from torch import nn

from layerscope.errors import InputError
from layerscope.runner.foreign.arms import arms_of, patterns_of

BLOCK = nn.ModuleDict({"attn": nn.Linear(2, 2), "mlp": nn.Linear(2, 2)})


def refusal(arms: object, regions: object = None) -> str:
    """The message with which arms and regions are refused."""
    with pytest.raises(InputError) as caught:
        arms_of(arms, patterns_of(regions or {}))
    return str(caught.value)


def test_callables_become_arms_in_order() -> None:
    """One callable, or several that take turns, also as torch lists modules."""
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    arms = arms_of(
        {"f": torch.relu, "two": [one, two.forward], "list": nn.ModuleList([one, two])},
        {},
    )
    assert list(arms) == ["f", "two", "list"]
    assert [arm.name for arm in arms.values()] == ["f", "two", "list"]
    assert (arms["f"].functions, arms["f"].roots) == ((torch.relu,), (None,))
    assert arms["two"].functions == (one, two.forward)
    assert arms["two"].roots == arms["list"].roots == (one, two)


def test_a_container_that_can_be_called_is_one_callable() -> None:
    """An empty one too: nothing asks how long a module is."""
    chain = nn.Sequential()
    arm = arms_of({"chain": chain}, {})["chain"]
    assert (arm.functions, arm.roots) == ((chain,), (chain,))


def test_regions_are_looked_up_in_every_module() -> None:
    """A pattern needs to match in one arm only; a single one needs no list."""
    patterns = patterns_of({"attention": "attn", "mlp": ("mlp", "mlp.*")})
    assert patterns == {"attention": ["attn"], "mlp": ["mlp", "mlp.*"]}
    arms = arms_of({"f": torch.relu, "block": BLOCK}, patterns)
    assert arms["f"].modules == ({},)
    assert arms["block"].modules == (
        {"attention": [BLOCK["attn"]], "mlp": [BLOCK["mlp"]]},
    )


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (
            [BLOCK],
            "arms is of type list; give callables by name, the first to compare with",
        ),
        ({}, "arms is empty; give callables by name, the first to compare with"),
        ({"a": 3}, "arm a is of type int; give a callable, or a sequence of callables"),
        (
            {"a": []},
            "arm a is of type list; give a callable, or a sequence of callables",
        ),
        (
            {"a": [3]},
            "arm a is of type list; give a callable, or a sequence of callables",
        ),
        ({"": BLOCK}, "'' is no name of an arm: it must be one line of text"),
        ({3: BLOCK}, "3 is no name of an arm: it must be one line of text"),
        ({"a\n": BLOCK}, "'a\\n' is no name of an arm: it must be one line of text"),
        (
            {"a (A/A)": BLOCK},
            "'a (A/A)' is no name of an arm: it must be one line of text",
        ),
    ],
)
def test_what_is_no_arm_is_refused(arms: object, message: str) -> None:
    """Each in one line that names it; ``(A/A)`` is layerscope's own."""
    assert refusal(arms) == message


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        (["mlp"], "regions is of type list; give patterns of module names by region"),
        (
            {"a b": "mlp"},
            "regions: 'a b' is no name: a letter, then letters, digits and _",
        ),
        ({3: "mlp"}, "regions: 3 is no name: a letter, then letters, digits and _"),
        ({"mlp": 3}, "regions: mlp must be a pattern of module names, or several"),
        ({"mlp": []}, "regions: mlp must be a pattern of module names, or several"),
        ({"mlp": [3]}, "regions: mlp must be a pattern of module names, or several"),
        (
            {"moe": "expert*"},
            "region moe: no module matches expert*; there are attn, mlp",
        ),
    ],
)
def test_regions_that_cannot_be_are_refused(regions: object, message: str) -> None:
    """Each in one line; where nothing matches, it lists what there is."""
    assert refusal({"base": BLOCK}, regions) == message


def test_a_large_model_is_not_listed_whole() -> None:
    """The message stays one that can be read."""
    model = nn.ModuleList(nn.Identity() for _ in range(30))
    arms = {"model": nn.Sequential(model)}
    assert refusal(arms, {"mlp": "mlp"}).endswith("0.17, 0.18 and 11 more")


def test_functions_have_no_modules() -> None:
    """Names of modules are then of no use, and markers are named instead."""
    assert refusal({"f": torch.relu}, {"mlp": "mlp"}) == (
        "regions by module names need an arm that is a module or its method; mark "
        "regions with layerscope.region instead"
    )


def test_compiled_modules_show_no_parts() -> None:
    """A name within compiled code is not found."""
    assert refusal({"f": torch.compile(BLOCK, backend="eager")}, {"mlp": "mlp"}) == (
        "region mlp: no module matches mlp; there is none that can be marked"
    )
