"""Commands on the runs that were recorded on H200s."""

import json
from pathlib import Path

import pytest

from layerscope.cli.main import main

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
WHOLE = str(FIXTURES / "h200" / "qwen3-30b-a3b-tp1-rows6-bfloat16")
EARLIER = str(FIXTURES / "h200-qwen3-30b-a3b-tp1")
SLICE = str(FIXTURES / "h200" / "qwen3-30b-a3b-tp4-rows6-bfloat16")
FOREIGN = str(FIXTURES / "h200" / "foreign-pair")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """What a command prints as JSON."""
    assert main([*arguments, "--json"]) == 0
    parsed: dict[str, object] = json.loads(capsys.readouterr().out)
    return parsed


def test_the_ledger_of_a_layer_and_of_its_draft(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lines and residual add up to the change.

    The residual is 0.7 % of the layer, and 3.5 % of the draft, whose kernels the
    profiler costs more than it did in calibration.
    """
    arguments = ("compare", WHOLE, "--arms", "reference,torch_compile")
    whole = document(capsys, *arguments)
    assert isinstance(whole["parts"], list)
    for report, percent in zip((whole, *whole["parts"]), (0.7, 3.5), strict=True):
        arms, causes, *_ = report["tables"]
        assert causes["title"].startswith("ledger of torch_compile, ")
        changes = {row["cause"]: row["change_ns"]["value"] for row in causes["rows"]}
        total = changes.pop("change")
        assert sum(changes.values()) == pytest.approx(total)
        assert total < 0
        base_ns = arms["rows"][0]["anchor_ns"]["value"]
        assert round(100 * changes["residual"] / base_ns, 1) == percent


def test_callables_are_compared_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The foreign pair does not differ, and its headline has no causes."""
    found = document(capsys, "compare", FOREIGN)
    headlines = found["headlines"]
    assert isinstance(headlines, dict)
    told = headlines["merged_mlp against transformers"]
    assert told.startswith("no difference, ")
    assert "residual" not in told


TWO_DEVICES = "the runs are of two devices NVIDIA H200, which need not be equally fast"


def test_two_recordings_on_two_devices_do_not_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half a day apart; a note says that the devices are two."""
    found = document(capsys, "compare", EARLIER, WHOLE)
    headlines = found["headlines"]
    assert isinstance(headlines, dict)
    assert list(headlines) == ["reference"]
    told = "no difference, the interval includes zero; −0.80 µs (−0.13 %, "
    assert headlines["reference"].startswith(told)
    assert found["differences"] == []
    assert isinstance(found["notes"], list)
    assert TWO_DEVICES in found["notes"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["compare", WHOLE, SLICE], "--anyway compares them all the same"),
        (["gate", SLICE, "--against", WHOLE], "record both runs alike, on one machine"),
    ],
)
def test_other_work_is_refused(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slice of a rank is not the whole layer."""
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: the runs differ in work or machine: tp: ")
    assert line.endswith(f"; {advice}\n")


def test_a_run_passes_against_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Layer and draft, every arm: no change, and nothing that is not judged."""
    assert main(["gate", WHOLE, "--against", WHOLE]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(" ")[0] for line in out.splitlines()] == ["pass:"] * 4
    assert err == ""


def test_an_arm_that_only_the_new_run_has_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The arm that both have passes."""
    assert main(["gate", WHOLE, "--against", EARLIER]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("pass: reference 623.3 µs against 624.1 µs, ")
    assert err == (
        f"{TWO_DEVICES}\n"
        f"torch_compile is not judged: {EARLIER} has no such arm\n"
        f"the draft of reference is not judged: {EARLIER} has none\n"
    )
