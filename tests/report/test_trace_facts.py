"""The header of a report on a trace, line by line."""

from typing import Any

import msgspec
import pytest

from layerscope.analyze.swept_trace import sweep_trace
from layerscope.report.trace_facts import format_words, trace_facts, trust_facts
from layerscope.trace import Trace, TraceDevice, TraceNote
from tests.analyze.placed_kernels import Row, kernel, placed, trace


def changed(found: Trace, **fields: Any) -> Trace:  # noqa: ANN401
    """The same trace with other fields."""
    kept = ("source", "kernels", "calls", "ranges", "devices")
    return Trace(**{name: getattr(found, name) for name in kept} | fields)


def facts(rows: list[Row], **fields: Any) -> dict[str, str]:  # noqa: ANN401
    """The header of a trace of these kernels, by label."""
    swept = sweep_trace(changed(trace(rows), **fields), placed(rows))
    return {fact.label: fact.text for fact in trace_facts(swept, 0)}


def layers(*steps: str, kind: str = "decode") -> list[Row]:
    """A kernel a layer; a step is its variants, in order."""
    return [
        kernel(
            100 * step + 10 * layer,
            5,
            step=step,
            step_kind=kind,
            layer=layer,
            variant=variant,
        )
        for step, variants in enumerate(steps)
        for layer, variant in enumerate(variants)
    ]


def test_notes_by_kind() -> None:
    """The gravest first; what is in the nature of a file has no count."""
    notes = [
        TraceNote(kind="dropped", what="slices that never end", count=1_200),
        TraceNote(kind="untrusted", what="overlaps were rewritten"),
        TraceNote(kind="dropped", what="kernels without a time"),
    ]
    assert [(fact.label, fact.text) for fact in trust_facts(notes)] == [
        ("untrusted", "overlaps were rewritten"),
        ("dropped", "slices that never end (1,200); kernels without a time (1)"),
    ]


@pytest.mark.parametrize(
    ("written_by", "words"),
    [
        ("", "Kineto JSON"),
        ("PyTorch profiler", "Kineto JSON of PyTorch profiler"),
        ("Kineto", "Kineto JSON"),
    ],
)
def test_format(written_by: str, words: str) -> None:
    """The tool is named unless the format says it."""
    found = trace([kernel(0, 5)])
    source = msgspec.structs.replace(found.source, written_by=written_by)
    assert format_words(changed(found, source=source)) == words


@pytest.mark.parametrize(
    ("architecture", "unit"), [("sm_90", "SMs"), ("gfx942", "CUs"), ("", "processors")]
)
def test_device(architecture: str, unit: str) -> None:
    """What the file tells of it, with the rank of its process."""
    device = TraceDevice(
        device=0,
        name="A GPU",
        architecture=architecture,
        processors=132,
        memory_bytes=80_000_000_000,
    )
    told = facts([kernel(0, 5)], devices=(device,), rank=3, ranks=8)["device"]
    words = ["0", "A GPU", *filter(None, [architecture]), f"132 {unit}", "80.00 GB"]
    assert told == ", ".join([*words, "rank 3 of 8"])
    assert facts([kernel(0, 5)], devices=())["device"] == "0, not described in the file"


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        (0, "2 kernels on 1 stream"),
        (1, "2 kernels, 1 copy or fill on 1 stream"),
        (2, "2 kernels, 2 copies and fills on 1 stream"),
    ],
)
def test_copies_are_counted_apart(copies: int, words: str) -> None:
    """Copies and fills between the first kernel and the last are no kernels."""
    rows = [kernel(10 * each, 5, kind="copy") for each in range(1, copies + 1)]
    assert facts([kernel(0, 5), *rows, kernel(90, 5)])["kernels"] == words


def test_communication() -> None:
    """How long collectives ran, and what computation beside them hides of it."""
    rows = [
        kernel(0, 1_000),
        kernel(600, 1_000, stream=8, name="ncclDevKernel_AllReduce"),
    ]
    told = facts(rows)
    assert told["communication"] == (
        "1 kernel, 1.000 µs, of which computation on other streams hides 400 ns"
    )
    assert told["overlap"] == (
        "0 ns of kernels of one stream, 400 ns of kernels of several"
    )


def test_layers_of_steps_that_differ() -> None:
    """Their numbers are told as a range, and variants over all steps."""
    whole = "; 100.0 % of the time of kernels"
    assert facts(layers("AAA"))["layers"] == f"3 a step, all alike{whole}"
    assert facts(layers("BAA", "AA"))["layers"] == (
        f"2 to 3 a step, of variants in 2 steps A 4, B 1{whole}"
    )


def test_many_variants() -> None:
    """The first eight by layers are named, and the others counted."""
    assert facts(layers("AABCDEFGHIJ"))["layers"].startswith(
        "11 a step, of variants A 2, B 1, C 1, D 1, E 1, F 1, G 1, H 1, 2 others 2;"
    )
