"""A diagnosis in a terminal: a line a topic, and below it what to do."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from layerscope.report.diagnosis import Diagnosis, Finding, State

_WIDEST: Final = 100
_NARROWEST: Final = 30  # characters of text, however narrow the terminal
_STATE_WIDTH: Final = 9
_STYLES: Final = {
    State.OK: "blue",
    State.LIMITED: "yellow",
    State.MISSING: "bold yellow",
    State.REFUSED: "bold yellow",
    State.NOT_APPLICABLE: "dim",
}


def print_diagnosis(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Write `diagnosis` to `console`, standard output by default, in one go.

    Fixes are never broken over lines, so that they can be copied. Topics that have no
    meaning here share a line.

    Raises:
        OSError: it could not be written.
    """
    console = console or Console()
    with console.capture() as captured:
        for line in _lines(diagnosis, min(console.width, _WIDEST)):
            console.print(line, soft_wrap=True)
    console.file.write(captured.get())
    console.file.flush()


def _lines(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    topics = [
        finding.topic
        for finding in diagnosis.findings
        if finding.state is not State.NOT_APPLICABLE
    ]
    indent = _STATE_WIDTH + max(map(len, topics), default=0) + 2
    for section in diagnosis.sections:
        yield Text(section.title, style="bold")
        for key, group in groupby(section.findings, key=_together):
            findings = list(group)
            if key:
                yield from _not_applicable(findings, width)
                continue
            for finding in findings:
                yield from _finding(finding, indent, width)
        yield Text()
    yield _verdict(diagnosis)


def _together(finding: Finding) -> str:
    """Equal for neighbours that share a line; empty for what has its own."""
    return finding.found if finding.state is State.NOT_APPLICABLE else ""


def _not_applicable(findings: list[Finding], width: int) -> Iterator[Text]:
    topics = ", ".join(finding.topic for finding in findings)
    text = f"{topics}: {findings[0].found}"
    yield from _beside(_state(State.NOT_APPLICABLE), text, width)


def _finding(finding: Finding, indent: int, width: int) -> Iterator[Text]:
    head = _state(finding.state).append(finding.topic.ljust(indent - _STATE_WIDTH))
    yield from _beside(head, finding.found, width)
    if finding.meaning:
        yield from _beside(Text(" " * indent), finding.meaning, width)
    if finding.fix:
        yield Text(" " * indent).append("fix: ", style="bold").append(finding.fix)


def _state(state: State) -> Text:
    return Text().append(state.ljust(_STATE_WIDTH), style=_STYLES[state])


def _beside(head: Text, text: str, width: int) -> Iterator[Text]:
    """`text` to the right of `head`, in as many lines as it needs."""
    indent = len(head)
    first, *others = wrap(text, max(_NARROWEST, width - indent)) or [""]
    yield head.append(first)
    for line in others:
        yield Text(" " * indent + line)


def _verdict(diagnosis: Diagnosis) -> Text:
    device = diagnosis.device
    if diagnosis.is_ready and device is not None:
        limits = sum(
            finding.state in (State.LIMITED, State.MISSING)
            for finding in diagnosis.findings
        )
        but = f", with {limits} limit{'s' * (limits > 1)} above" if limits else ""
        return Text(f"ready: layerscope profile measures {device.name}{but}")
    topics = ", ".join(finding.topic for finding in diagnosis.blocking)
    return Text(f"not ready: nothing can be measured until this is mended: {topics}")


def to_json(diagnosis: Diagnosis) -> str:
    """The diagnosis as one JSON object for programs; topics keep their names."""
    document = {
        "ready": diagnosis.is_ready,
        "blocking": [finding.topic for finding in diagnosis.blocking],
        "device": diagnosis.device,
        "sections": diagnosis.sections,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
