from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.kernel_rules import RangeRule, Rules, load_rules
from layerscope.analyze.trace_ranges import assign_by_ranges
from layerscope.schema import TRACE_CALLS, TRACE_RANGES
from tests.analyze.named_kernels import named

RULES = load_rules()
THREAD = 9
ADDED = ["range_name", "range_layer", "role", "region", "assigned_by"]


def calls_at(starts: list[int], **columns: int) -> pl.DataFrame:
    """A call of one thread at each time; its number is its correlation."""
    call = {"thread": THREAD, "name": "cudaLaunchKernel", "duration_ns": 1}
    rows = [call | {"start_ns": at, "correlation": i} for i, at in enumerate(starts)]
    frame = pl.DataFrame(rows, schema=TRACE_CALLS)
    return frame.with_columns(**{k: pl.lit(v, pl.Int64) for k, v in columns.items()})


def ranges_of(*spans: tuple[str, int, int], **columns: object) -> pl.DataFrame:
    """Annotations of the thread: name, start and end."""
    row = {"kind": "annotation", "thread": THREAD} | columns
    rows = [row | {"name": n, "start_ns": a, "end_ns": b} for n, a, b in spans]
    frame = pl.DataFrame(rows, schema=TRACE_RANGES)
    return frame.sort("start_ns", "end_ns", descending=[False, True])


def told(starts: list[int], *spans: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    """What ranges say of kernels launched at these times."""
    kernels = named([f"k{i}" for i in range(len(starts))])
    found = assign_by_ranges(kernels, calls_at(starts), ranges_of(*spans), RULES)
    return found.select(ADDED).rows()


def test_the_innermost_range_counts() -> None:
    """Name, layer, region and role are each of the innermost range that has one."""
    spans = [
        ("step[DECODE bs=1]", 0, 100),
        ("model.layers.3", 10, 60),
        ("layerscope:region:moe", 20, 50),
        ("layerscope:role:gate_up", 30, 40),
    ]
    nothing = (None, None, None)
    assert told([5, 15, 25, 35, 45, 55, 100], *spans) == [
        ("step[DECODE bs=1]", None, *nothing),
        ("model.layers.3", 3, *nothing),
        ("layerscope:region:moe", 3, None, "moe", "range layerscope"),
        ("layerscope:role:gate_up", 3, "gate_up", "moe", "range layerscope"),
        ("layerscope:region:moe", 3, None, "moe", "range layerscope"),
        ("model.layers.3", 3, *nothing),
        (None, None, *nothing),  # as it ends
    ]


MODULES = {
    "model.layers.12.self_attn.qkv_proj": (12, "attention", False),
    "model.layers.12.self_attn.o_proj": (12, "o_proj_all_reduce", False),
    "model.layers.12.self_attn": (12, "attention", True),
    "model.layers.12.post_attention_layernorm": (12, "o_proj_all_reduce", False),
    "model.layers.12.input_layernorm": (12, "attention", False),
    "model.layers.0.mlp.experts": (0, "moe", False),
    "model.layers.0.mlp.gate_up_proj": (0, "mlp", False),
    "{'Module': 'model.layers.7.mlp'}": (7, "mlp", False),
    "transformer.h.5.attn": (5, "attention", False),
    "lm_head": (None, "other", False),
    "model.norm": (None, "other", False),
    "nn.Module: Qwen2DecoderLayer_11": (11, None, None),
    "nn.Module: TransformerBlock_4": (4, None, None),
    "nn.Module: Qwen2Attention_17": (None, "attention", True),
    "nn.Module: Qwen2MLP_2": (None, "mlp", False),
    "nn.Module: FusedMoE_23": (None, "moe", False),
    "nn.Module: Linear_45": (None, None, None),
    "nn.Module: VocabParallelEmbedding_0": (None, "other", False),
    "layerscope:region:my_own": (None, "my_own", False),
    "execute_32_context_0(sq0)_generation_32(sq32)": (None, None, None),
}


@pytest.mark.parametrize(("name", "truth"), MODULES.items())
def test_modules(name: str, truth: tuple[int | None, str | None, bool | None]) -> None:
    """Names of modules tell layer and region; an attention module also holds o-proj."""
    found = assign_by_ranges(
        named(["k"]), calls_at([5]), ranges_of((name, 0, 10)), RULES
    ).row(0, named=True)
    layer, region, is_coarse = truth
    assert found["range_layer"] == layer
    assert found["region"] == (None if is_coarse else region)
    assert found["range_region"] == (region if is_coarse else None)
    assert (found["range_rule"] is None) == (not is_coarse)


def test_steps_say_nothing() -> None:
    """A range of kind step is no annotation."""
    ranges = ranges_of(("mlp", 0, 10), kind="step")
    found = assign_by_ranges(named(["k"]), calls_at([5]), ranges, RULES)
    assert found.select(ADDED).row(0) == (None,) * 5


def test_other_threads_and_processes_are_apart() -> None:
    """A range holds what its own thread of its own process launches."""
    ranges = ranges_of(("mlp", 0, 10))
    kernels = named(["k"])
    other = kernels.with_columns(process=pl.lit(1, pl.Int64))
    for one, calls in (
        (kernels, calls_at([5], thread=THREAD + 1)),
        (other, calls_at([5], process=1)),
        (kernels, calls_at([5], process=1)),
        (kernels.with_columns(correlation=pl.lit(None, pl.Int64)), calls_at([5])),
        (kernels, calls_at([]).clear()),
    ):
        found = assign_by_ranges(one, calls, ranges, RULES)
        assert found.select(ADDED).row(0) == (None,) * 5
    both = assign_by_ranges(
        other, calls_at([5], process=1), ranges_of(("mlp", 0, 10), process=1), RULES
    )
    assert both.get_column("region").to_list() == ["mlp"]


def test_all_kernels_of_a_replay_are_in_the_ranges_of_its_launch() -> None:
    """Kernels that share a correlation share the call, and its ranges."""
    kernels = named(["a", "b"]).with_columns(correlation=pl.lit(0, pl.Int64))
    found = assign_by_ranges(kernels, calls_at([5]), ranges_of(("mlp", 0, 10)), RULES)
    assert found.get_column("region").to_list() == ["mlp", "mlp"]


def test_ranges_on_a_device_row() -> None:
    """A range of a stream holds what starts in it, unless the launch tells."""
    ranges = pl.concat(
        [
            ranges_of(("mlp", 0, 2_500), thread=None, device=0, stream=7),
            ranges_of(("model.layers.1.self_attn.o_proj", 5, 6)),
        ]
    )
    kernels = named(["a", "b", "c", "d"])  # start at 0, 1000, 2000, 3000
    calls = calls_at([1, 5, 7, 8])
    found = assign_by_ranges(kernels, calls, ranges, RULES)
    assert found.get_column("region").to_list() == [
        "mlp",
        "o_proj_all_reduce",
        "mlp",
        None,
    ]


def test_frames_pass_through() -> None:
    """All rows and columns stay as they are, with and without ranges."""
    kernels = named(["a", "b"])
    for ranges in (ranges_of(("mlp", 0, 10)), ranges_of(("mlp", 0, 10)).clear()):
        found = assign_by_ranges(kernels, calls_at([5, 6]), ranges, RULES)
        assert_frame_equal(found.select(kernels.columns), kernels)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Spans of which any two are nested or apart."""
    spans: list[tuple[str, int, int]] = []
    open_until = [40]
    at = 0
    for number in range(draw(st.integers(0, 8))):
        at += draw(st.integers(0, 5))
        while len(open_until) > 1 and open_until[-1] <= at:
            open_until.pop()
        if at >= open_until[-1]:
            break
        end = draw(st.integers(at, open_until[-1]))
        spans.append((f"r{number}", at, end))
        if end > at:
            open_until.append(end)
    return spans


@given(nested(), st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_innermost_is_the_shortest_that_holds(
    spans: list[tuple[str, int, int]], starts: list[int]
) -> None:
    """Of the ranges open at a launch the innermost is the last that was opened."""
    rules = Rules(range=(RangeRule(name="any", pattern="^r", region="moe"),))
    kernels = named([f"k{i}" for i in range(len(starts))])
    found = assign_by_ranges(kernels, calls_at(starts), ranges_of(*spans), rules)
    expected = []
    for start in starts:
        holding = [span for span in spans if span[1] <= start < span[2]]
        expected.append(holding[-1][0] if holding else None)
    names = found.get_column("range_name").to_list()
    sizes = {name: end - begin for name, begin, end in spans}
    begins = {name: begin for name, begin, _ in spans}
    # Two ranges of one begin and one end hold each other: either may be the inner one.
    assert [(n and (begins[n], sizes[n])) for n in names] == [
        (n and (begins[n], sizes[n])) for n in expected
    ]
