import io
import json

from rich.console import Console

from layerscope.environment import DeviceFacts
from layerscope.render.diagnosis import print_diagnosis, to_json
from layerscope.report.diagnosis import (
    Diagnosis,
    Finding,
    Section,
    State,
    not_applicable,
)

CPU = DeviceFacts(type="cpu", name="Paper CPU", processors=2)
FIX = (
    "pip install 'layerscope[cuda]' 'cupti-python==13.0.*' 'nvidia-cuda-cupti==13.0.*'"
)


def printed(diagnosis: Diagnosis, *, width: int, is_terminal: bool = False) -> str:
    """The text of `diagnosis` at a width."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=is_terminal,
        color_system="standard" if is_terminal else None,
    )
    print_diagnosis(diagnosis, console)
    return file.getvalue()


def diagnosis(*findings: Finding, device: DeviceFacts | None = CPU) -> Diagnosis:
    """One section of `findings`."""
    return Diagnosis(device, (Section("all", findings),))


def test_a_line_a_topic_and_below_it_what_to_do() -> None:
    """Sections are apart; topics without a meaning here share a line."""
    whole = Diagnosis(
        CPU,
        (
            Section("software", (Finding("torch", State.OK, "2.13.0"),)),
            Section(
                "recording",
                (
                    Finding("CUPTI", State.MISSING, "not there", "no nodes", FIX),
                    *not_applicable(("NVML", "clocks"), "for GPUs"),
                    *not_applicable(("ROCm",), "for AMD GPUs"),
                ),
            ),
        ),
    )
    assert printed(whole, width=60).splitlines() == [
        "software",
        "ok       torch  2.13.0",
        "",
        "recording",
        "missing  CUPTI  not there",
        "                no nodes",
        f"                fix: {FIX}",
        "n/a      NVML, clocks: for GPUs",
        "n/a      ROCm: for AMD GPUs",
        "",
        "ready: layerscope profile measures Paper CPU, with 1 limit above",
    ]


def test_long_text_is_wrapped_beside_its_topic() -> None:
    """A narrow terminal keeps the columns; a wide one is not filled to its end."""
    found = "word " * 30
    lines = printed(diagnosis(Finding("torch", State.OK, found)), width=56).splitlines()
    assert lines[1] == "ok       torch  " + "word " * 7 + "word"
    assert lines[2] == "                " + "word " * 7 + "word"
    lines = printed(
        diagnosis(Finding("torch", State.OK, found)), width=999
    ).splitlines()
    assert max(map(len, lines)) <= 100


def test_a_very_narrow_terminal_is_no_error() -> None:
    """Text keeps a width that can be read."""
    lines = printed(diagnosis(Finding("torch", State.OK, "a b")), width=5).splitlines()
    assert lines[1] == "ok       torch  a b"


def test_what_blocks_is_told_last() -> None:
    """The last line says why nothing can be measured, by topic."""
    blocked = diagnosis(
        Finding("torch", State.OK, "2.13.0"),
        Finding("MIG", State.REFUSED, "on", blocks=True),
        Finding("other processes", State.REFUSED, "4711", blocks=True),
    )
    *_, last = printed(blocked, width=80).splitlines()
    assert last == (
        "not ready: nothing can be measured until this is mended: MIG, other processes"
    )


def test_without_limits_the_verdict_is_short() -> None:
    """What has no meaning here is no limit."""
    clean = diagnosis(
        Finding("torch", State.OK, "2.13.0"), *not_applicable(("NVML",), "for GPUs")
    )
    *_, last = printed(clean, width=80).splitlines()
    assert last == "ready: layerscope profile measures Paper CPU"
    two = diagnosis(
        Finding("clocks", State.LIMITED, "hot"), Finding("nvtx", State.MISSING, "none")
    )
    *_, last = printed(two, width=80).splitlines()
    assert last.endswith(", with 2 limits above")


def test_text_is_never_markup_and_colours_say_nothing_new() -> None:
    """Brackets of pip's extras stay, and a terminal sees the same words."""
    one = diagnosis(Finding("torch", State.MISSING, "[bold]none[/bold]", "", FIX))
    plain = printed(one, width=80)
    assert "[bold]none[/bold]" in plain
    assert "\x1b" not in plain
    assert "\x1b[" in printed(one, width=80, is_terminal=True)


def test_json_has_every_field_and_the_verdict() -> None:
    """Programs read states and reasons by stable names."""
    one = diagnosis(Finding("GPU", State.MISSING, "none", "no", "buy", blocks=True))
    assert json.loads(to_json(one)) == {
        "ready": False,
        "blocking": ["GPU"],
        "device": {
            "type": "cpu",
            "name": "Paper CPU",
            "index": 0,
            "uuid": "",
            "architecture": "",
            "processors": 2,
            "memory_bytes": 0,
            "l2_bytes": 0,
            "driver": "",
            "runtime": "",
        },
        "sections": [
            {
                "title": "all",
                "findings": [
                    {
                        "topic": "GPU",
                        "state": "missing",
                        "found": "none",
                        "meaning": "no",
                        "fix": "buy",
                        "blocks": True,
                    }
                ],
            }
        ],
    }
    assert json.loads(to_json(diagnosis(device=None)))["device"] is None
