"""Names of steps."""

import pytest

from layerscope.analyze.step_names import Source, step_ranges
from tests.analyze.planted import ranges


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("step[DECODE bs=32]", Source.SGLANG, "decode"),
        ("step[EXTEND bs=15 toks=15360]", Source.SGLANG, "prefill"),
        ("step[TARGET_VERIFY bs=4]", Source.SGLANG, "decode"),
        ("step[MIXED bs=9]", Source.SGLANG, "mixed"),
        ("step[IDLE bs=0]", Source.SGLANG, "unknown"),
        ("execute_context_1(888_788544)_generation_0(0)", Source.VLLM, "prefill"),
        ("execute_context_0(0)_generation_32(32)", Source.VLLM, "decode"),
        ("execute_9_context_2(sq8sk8)_generation_7(sq7sk9)", Source.VLLM, "mixed"),
        ("execute_context_0(0)_generation_0(0)", Source.VLLM, "unknown"),
        ("execute_new_3_cached_0", Source.VLLM, "prefill"),
        ("execute_new_0_cached_8", Source.VLLM, "unknown"),
        ("execute_32_generation_32", Source.VLLM, "unknown"),
        (
            "[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
            Source.TENSORRT_LLM,
            "decode",
        ),
        (
            "[Executor] _forward_step 8: 2 ctx reqs, 1 gen reqs",
            Source.TENSORRT_LLM,
            "mixed",
        ),
        ("ProfilerStep#6", Source.PROFILER, "unknown"),
        ("iteration 12", Source.NUMBERED, "unknown"),
        ("train/step_3", Source.NUMBERED, "unknown"),
    ],
)
def test_steps(name: str, source: Source, kind: str) -> None:
    """Each says who names it, and of which kind it is."""
    (row,) = step_ranges(ranges((name, 0, 9))).rows(named=True)
    assert (row["source"], row["step_kind"]) == (source, kind)


@pytest.mark.parametrize(
    "name",
    [
        "aten::add",
        "capture_32_FULL",
        "Optimizer.step#SGD.step",
        "step",
        "steps[DECODE]",
        "execute_model",
        "step_1" * 200,
    ],
)
def test_others(name: str) -> None:
    """Ranges of other names are no steps."""
    assert step_ranges(ranges((name, 0, 9))).is_empty()


def test_what_a_reader_takes_for_a_step() -> None:
    """Its kind counts, whatever its name."""
    (row,) = step_ranges(ranges(("main loop", 0, 9), kind="step")).rows(named=True)
    assert (row["source"], row["step_kind"]) == (Source.PROFILER, "unknown")
