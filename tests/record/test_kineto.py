import gzip
import json
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.record.kineto import (
    Expected,
    Raw,
    by_order,
    by_place,
    eager_sequence,
    launch_groups,
    operators,
    placed,
)
from layerscope.record.recorder import (
    Event,
    Place,
    Recorded,
    fault,
    head_place,
    refuse_unmapped,
)
from layerscope.regions import Region
from tests.record.rows import (
    ATTENTION,
    EVENTS,
    EXPECTED,
    GROUP,
    LAUNCH,
    MOE,
    PLACES,
    cpu,
    gpu,
    mark,
)


def named(found: dict[int, list[tuple[Place, Raw]]]) -> dict[int, list[str]]:
    """Replays and their operators as ``pass region name``."""
    return {
        index: [f"{place.pass_index} {place.region} {raw.name}" for place, raw in rows]
        for index, rows in found.items()
    }


def test_outermost_operators_stand_for_what_they_call() -> None:
    """Children, also those that start or end with their parent, are inside it."""
    raws = [
        mark("replay", "0", 0, 100),
        cpu("aten::linear", 10, 50),
        cpu("aten::t", 10, 20),
        cpu("aten::addmm", 20, 50),
        cpu("aten::copy_", 30, 40),
        cpu("aten::add", 50, 60),  # begins as the first one ends
    ]
    assert named(operators(raws)) == {
        0: ["-1 other aten::linear", "-1 other aten::add"]
    }


def test_operators_stand_where_the_open_marks_say() -> None:
    """The head is before the first pass; outside of every region is ``other``."""
    raws = [
        mark("replay", "0", 0, 100),
        mark("region", "other", 1, 9),
        cpu("head", 2, 8),
        mark("pass", "0", 10, 50),
        mark("region", "attention", 10, 30),
        cpu("attend", 10, 20),  # a mark and its first operator may start together
        cpu("project", 20, 30),
        cpu("stray", 30, 35),
        mark("region", "moe", 35, 50),
        cpu("experts", 36, 50),
        mark("pass", "1", 50, 90),
        mark("region", "moe", 50, 60),
        cpu("experts", 51, 60),
        cpu("tail", 95, 99),
    ]
    assert named(operators(raws)) == {
        0: [
            "-1 other head",
            "0 attention attend",
            "0 attention project",
            "0 other stray",
            "0 moe experts",
            "1 moe experts",
            "-1 other tail",
        ]
    }


def test_the_order_of_events_in_a_session_does_not_matter() -> None:
    """Profilers list events as they end, or in no order; marks still enclose."""
    raws = [
        cpu("experts", 36, 49),
        mark("region", "moe", 35, 50),
        cpu("attend", 11, 29),
        mark("region", "attention", 10, 30),
        mark("pass", "0", 10, 50),
        mark("replay", "0", 0, 60),
    ]
    assert named(operators(raws)) == {0: ["0 attention attend", "0 moe experts"]}


@pytest.mark.parametrize(
    "container",
    [
        cpu("Torch-Compiled Region: 0/0", 10, 90),
        cpu("## Call CompiledFxGraph fx1 ##", 10, 90),
        cpu("CompiledFunction", 10, 90),
        cpu("TorchDynamo Cache Lookup", 10, 20),
        cpu("Pregraph bytecode", 20, 22),
        cpu("AOTDispatcher Runtime Wrapper Prologue", 22, 24),
        cpu("ProfilerStep#3", 10, 90),
        cpu("my own range", 10, 90)._replace(annotation=True),
    ],
)
def test_containers_are_looked_through(container: Raw) -> None:
    """What wraps operators without being one hides none of them."""
    raws = [mark("replay", "0", 0, 100), container]
    raws += [cpu("first", 20, 30), cpu("second", 40, 50)]
    assert named(operators(raws)) == {0: ["-1 other first", "-1 other second"]}


def test_every_replay_has_its_own_operators_and_what_is_outside_has_none() -> None:
    """Events between replays, and those of a GPU, belong to no replay."""
    raws = [
        cpu("before", 0, 5),
        mark("replay", "0", 10, 20),
        cpu("a", 11, 19),
        cpu("between", 21, 29),
        mark("replay", "1", 30, 40),
        cpu("a", 31, 39),
        gpu("kernel", 32, 38, 1),
    ]
    assert named(operators(raws)) == {0: ["-1 other a"], 1: ["-1 other a"]}


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 2)), max_size=8
    )
)
def test_each_outermost_operator_is_found_once(
    steps: list[tuple[int, int, int]],
) -> None:
    """However long the pauses and however deep the calls, the tops are what is left."""
    tops, children, now_ns = [], [], 0
    for number, (pause_ns, length_ns, depth) in enumerate(steps):
        now_ns += pause_ns
        tops.append(cpu(f"top {number}", now_ns, now_ns + length_ns))
        children += [cpu("child", now_ns, now_ns + length_ns)] * depth
        now_ns += length_ns
    found = operators([mark("replay", "0", 0, now_ns + 1), *tops, *children])
    assert [raw for _, raw in found.get(0, [])] == tops


def test_gpu_events_are_grouped_by_launch_in_order_of_start() -> None:
    """Annotations and CPU events are in no group; streams of one launch may overlap."""
    a, b, c = gpu("a", 50, 60, 9), gpu("b", 52, 70, 9), gpu("c", 10, 20, 12)
    note = gpu("note", 0, 99, 0)._replace(annotation=True)
    assert launch_groups([b, a, note, cpu("cudaGraphLaunch", 0, 5, 9), c]) == [
        [c],
        [a, b],
    ]


MARKED = [
    mark("replay", "0", 0, 100),
    mark("pass", "0", 10, 50),
    mark("region", "attention", 10, 30),
    mark("region", "moe", 30, 50),
]


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaMemcpyAsync",
        "cudaGraphLaunch",
        "cuLaunchKernelEx",
        "cuMemsetD32Async",
        "hipLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipMemcpyWithStream",
    ],
)
def test_kernels_are_placed_by_the_runtime_call_that_launched_them(call: str) -> None:
    """The call shares their correlation id, and lies in the ranges of its region."""
    raws = [*MARKED, cpu(call, 12, 14, 5), cpu(call, 40, 41, 6)]
    raws += [gpu("second", 300, 310, 6), gpu("first", 200, 210, 5)]
    assert eager_sequence(raws) == [
        Expected(ATTENTION, "first"),
        Expected(MOE, "second"),
    ]


def test_without_a_call_the_operator_around_it_places_a_kernel() -> None:
    """Ids of operators and of calls are counted apart, and may be equal."""
    raws = [
        *MARKED,
        cpu("aten::mm", 31, 40, 5),
        cpu("cudaLaunchKernel", 12, 14, 5),
        gpu("by call", 200, 210, 5, operator=5),
        gpu("by operator", 300, 310, 77, operator=5),
    ]
    assert eager_sequence(raws) == [
        Expected(ATTENTION, "by call"),
        Expected(MOE, "by operator"),
    ]


def test_kernels_of_no_known_launcher_or_mark_belong_to_the_head() -> None:
    """As does what the head itself launched; annotations are no kernels."""
    raws = [
        *MARKED,
        cpu("hipLaunchKernel", 5, 6, 1),
        gpu("head", 100, 110, 1),
        gpu("lost", 120, 130, 2, operator=3),
        gpu("note", 0, 500, 0)._replace(annotation=True),
    ]
    head = head_place()
    assert eager_sequence(raws) == [Expected(head, "head"), Expected(head, "lost")]


def test_a_launch_of_the_expected_names_is_mapped_by_order() -> None:
    """Every event becomes the node of its place in the sequence."""
    found = by_order(LAUNCH, EXPECTED, GROUP)
    assert found == Recorded(LAUNCH, EVENTS, PLACES)
    assert fault(found) is None


OTHER = "other names, regions or order than expected"


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ([GROUP[0], gpu("another", 13, 20, 9), GROUP[2]], OTHER),
        ([GROUP[1], GROUP[0], GROUP[2]], OTHER),
        ([*GROUP, gpu("attend", 23, 24, 9)], "4 records where 3 were expected"),
        (GROUP[:2], "2 records where 3 were expected"),
        (GROUP[1:], "2 records where 3 were expected"),
        ([], "0 records where 3 were expected"),
    ],
)
def test_a_launch_of_another_sequence_is_a_fault_of_its_own(
    group: list[Raw], why: str
) -> None:
    """None of its events is mapped, for a lost one would have shifted those after it.

    The arm's other replays are as good as before, so no record counts as unmapped.
    """
    found = by_order(LAUNCH, EXPECTED, group)
    assert found == Recorded(LAUNCH, (), PLACES, mismatch=why)
    assert fault(found) == why
    refuse_unmapped([found])


OPERATORS_FOUND = [
    (head_place(), cpu("aten::add_", 1, 2)),
    (ATTENTION, cpu("aten::linear", 3, 9)),
    (MOE, cpu("aten::mul", 9, 10)),
]


def test_operators_of_the_expected_places_are_mapped_by_order() -> None:
    """Each is a node of its own; all run on one thread, which is stream 0."""
    found = by_place(LAUNCH, placed(OPERATORS_FOUND), OPERATORS_FOUND)
    events = (
        Event(0, "operator", "aten::add_", 0, 1, 2),
        Event(1, "operator", "aten::linear", 0, 3, 9),
        Event(2, "operator", "aten::mul", 0, 9, 10),
    )
    assert found == Recorded(LAUNCH, events, PLACES)
    assert fault(found) is None


@pytest.mark.parametrize(
    ("operators_found", "why"),
    [
        (
            [*OPERATORS_FOUND, (MOE, cpu("aten::mul", 11, 12))],
            "4 records where 3 were expected",
        ),
        ([*OPERATORS_FOUND[:2], (ATTENTION, OPERATORS_FOUND[2][1])], OTHER),
        ([*OPERATORS_FOUND[:2], (MOE, cpu("aten::add", 9, 10))], OTHER),
    ],
)
def test_operators_of_another_sequence_are_a_fault(
    operators_found: list[tuple[Place, Raw]], why: str
) -> None:
    """One more, one in another region, and one of another name."""
    found = by_place(LAUNCH, placed(OPERATORS_FOUND), operators_found)
    assert found == Recorded(LAUNCH, (), PLACES, mismatch=why)


GPU_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
OPERATORS = ("cpu_op", "user_annotation")


def trace(name: str) -> list[dict[str, Any]]:
    """The complete events of a Kineto file, with times in decimal microseconds."""
    folder = os.environ.get("LAYERSCOPE_TRACES")
    if not folder or not (path := Path(folder) / "TraceLens" / name).is_file():
        pytest.skip(f"LAYERSCOPE_TRACES holds no TraceLens/{name}")
    text = gzip.decompress(path.read_bytes())
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    return [event for event in events if event["ph"] == "X" and "cat" in event]


def raw(event: dict[str, Any]) -> Raw:
    """An event of a file as the profiler would have given it."""
    arguments, category = event["args"], event["cat"]
    start_us, length_us = Decimal(event["ts"]), Decimal(event["dur"])
    call_id = arguments.get("correlation", 0)
    operator_id = arguments.get("External id", 0)
    on_gpu = category in GPU_EVENTS
    return Raw(
        name=event["name"],
        start_ns=int(start_us * 1000),
        end_ns=int((start_us + length_us) * 1000),
        on_gpu=on_gpu,
        lane=event["tid"],
        correlation=operator_id if category in OPERATORS else call_id,
        operator=operator_id if on_gpu else 0,
        annotation=category.endswith("user_annotation"),
    )


def raws_of(events: list[dict[str, Any]]) -> list[Raw]:
    """Operators, runtime calls and GPU events of a file; no Python frames."""
    wanted = (*GPU_EVENTS, *OPERATORS, "cuda_runtime")
    return [raw(event) for event in events if event["cat"] in wanted]


def bert_marks(events: list[dict[str, Any]]) -> list[Raw]:
    """Marks where BERT's modules ran: a layer is a pass."""
    regions = {
        "BertAttention": "attention",
        "BertIntermediate": "mlp",
        "BertOutput": "mlp",
    }
    marks = []
    for event in events:
        _, _, module = event["name"].partition("nn.Module: ")
        kind, _, number = module.rpartition("_")
        span = raw(event).start_ns, raw(event).end_ns
        if kind == "BertLayer":
            marks.append(mark("pass", number, *span))
        if kind in regions:
            marks.append(mark("region", regions[kind], *span))
    return marks


BERT_ATTENTION = ["Cijk", "Cijk", "Cijk", "attn_fwd", "Cijk", "void at", "void at"]
BERT_MLP = ["Cijk", "void at", "Cijk", "void at", "void at"]


@pytest.mark.parametrize("known_by", ["both", "call", "operator"])
def test_kernels_of_an_mi300_are_placed_by_module(known_by: str) -> None:
    """Four layers of BERT: by the calls of HIP, by the operators, or by both."""
    events = trace("mi300_bert-small-uncased.json.gz")
    raws = raws_of(events)
    if known_by == "call":
        raws = [raw._replace(operator=0) for raw in raws]
    if known_by == "operator":
        raws = [raw for raw in raws if not raw.name.startswith("hip")]
    found = eager_sequence([*bert_marks(events), *raws])
    head = [want.name for want in found if want.place == head_place()]
    assert len(head) == 9 + 4  # embeddings and mask; the language model's head
    layers: dict[Place, list[str]] = {}
    for want in found:
        layers.setdefault(want.place, []).append(want.name)
    del layers[head_place()]
    assert list(layers) == [
        Place(index, part)
        for index in range(4)
        for part in (Region.ATTENTION, Region.MLP)
    ]
    for place, names in layers.items():
        chain = BERT_ATTENTION if place.region == Region.ATTENTION else BERT_MLP
        assert len(names) == len(chain)
        assert all(map(str.startswith, names, chain))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mi300_bert-small-uncased.json.gz", {1: 61}),
        ("vllm_decode_full_graph_execution.json.gz", {1: 13, 421: 1}),
        (
            "vllm_prefilldecode_piecewise_graph_execution.json.gz",
            {1: 62, 4: 1, 12: 1, 15: 23},
        ),
        ("sglang_Qwen3-8B_decode.json.gz", {1: 14, 544: 1}),
    ],
)
def test_all_kernels_of_a_hip_graph_are_one_group(
    name: str, sizes: dict[int, int]
) -> None:
    """A launch of a graph is one group of all its kernels, any other call its own."""
    events = trace(name)
    raws = raws_of(events)
    groups = launch_groups(raws)
    assert Counter(map(len, groups)) == sizes
    calls = {raw.correlation: raw.name for raw in raws if raw.name.startswith("hip")}
    large = [group for group in groups if len(group) > 1]
    assert all(calls[group[0].correlation] == "hipGraphLaunch" for group in large)
    starts = [[raw.start_ns for raw in group] for group in groups]
    assert [sorted(group) for group in starts] == starts
    assert sorted(starts) == starts


def test_a_hip_graph_is_mapped_by_its_own_sequence() -> None:
    """Every kernel of a launch is a node; one kernel fewer or another name is not."""
    raws = raws_of(trace("vllm_decode_full_graph_execution.json.gz"))
    graph = max(launch_groups(raws), key=len)
    expected = [Expected(ATTENTION, raw.name) for raw in graph]
    whole = by_order(LAUNCH, expected, graph)
    assert fault(whole) is None
    assert [event.name for event in whole.events] == [raw.name for raw in graph]
    shifted = by_order(LAUNCH, expected, graph[1:])
    assert fault(shifted) == "420 records where 421 were expected"
