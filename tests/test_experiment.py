import pytest

from layerscope.experiment import SERIAL, Experiment, usual


@pytest.mark.parametrize(
    ("experiment", "name"),
    [
        (Experiment(), "captured"),
        (SERIAL, "serial"),
        (Experiment(serial="passes"), "serial passes"),
        (Experiment(serial="moe"), "serial moe"),
        (Experiment(without="moe"), "without moe"),
        (Experiment(serial="all", without="moe"), "serial, without moe"),
        (Experiment(programmatic=True), "programmatic"),
        (Experiment(delay="moe", delay_ns=2000), "moe delayed by 2000 ns"),
        (Experiment(delay="moe/top_k"), "moe/top_k delayed by 0 ns"),
        (Experiment(delay="/top_k", delay_ns=1), "/top_k delayed by 1 ns"),
    ],
)
def test_an_experiment_is_named_by_what_it_changes(
    experiment: Experiment, name: str
) -> None:
    """As frames and reports call it; all but the first can be asked for so."""
    assert experiment.name == name
    if name != "captured":
        assert Experiment.parse(name) == experiment


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("without moe, without attention", "says the same twice"),
        ("serial, serial moe", "says the same twice"),
        ("programmatic, without moe", "a region is left out of the captured graph or"),
        ("serial passes, without moe", "a region is left out of the captured graph or"),
    ],
)
def test_what_nothing_would_tell_of_is_refused(text: str, why: str) -> None:
    """Rather than measured in vain, or in part."""
    with pytest.raises(ValueError, match=why):
        Experiment.parse(text)


@pytest.mark.parametrize("text", ["", "captured", "serial a b", "moe delayed by x ns"])
def test_what_names_no_experiment_is_refused(text: str) -> None:
    """With what may be written."""
    with pytest.raises(ValueError, match="is no experiment; write serial, serial pass"):
        Experiment.parse(text)


def test_every_arm_is_asked_for_its_twin_and_each_region_left_out_of_both() -> None:
    """The twin comes first: whether it is the captured graph itself decides others."""
    names = [experiment.name for experiment in usual(["attention", "moe"])]
    assert names == [
        "serial",
        "without attention",
        "serial, without attention",
        "without moe",
        "serial, without moe",
    ]
