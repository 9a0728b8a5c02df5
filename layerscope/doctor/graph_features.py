"""What can be done with a captured CUDA graph, tried on three kernels of its own.

Nothing here waits for another kernel, and the graph is seen by nobody else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from layerscope.doctor.versions import first_line, installed, version_of
from layerscope.errors import MeasurementError
from layerscope.report.diagnosis import Finding, State

_FULL: Final = 3
"""What the kernels make of 0: + 1, × 2, + 1."""

_WITHOUT_SECOND: Final = 2


@dataclass(frozen=True, slots=True)
class Tiny:
    """A captured graph of three kernels in a row on one number."""

    runtime: Any
    """``cuda.bindings.runtime``."""

    raw: Any
    """``cudaGraph_t``."""

    launch: Callable[[Any], int]
    """What one launch of an executable graph makes of 0."""

    owner: object
    """Keeps the graph alive."""

    def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 (untyped bindings)
        """Call a function of the runtime; its values, alone if there is only one.

        Raises:
            MeasurementError: it fails; names function and status.
        """
        return _call(self.runtime, name, *arguments)

    def nodes(self) -> list[Any]:
        """Handles in creation order."""
        _, count = self.call("cudaGraphGetNodes", self.raw)
        nodes, _ = self.call("cudaGraphGetNodes", self.raw, count)
        return list(nodes[:count])

    def edge_count(self) -> int:
        """How many dependencies there are."""
        *_, count = self.call("cudaGraphGetEdges", self.raw)
        return int(count)


def capture(device: torch.device, runtime: Any) -> Tiny:  # noqa: ANN401 (untyped bindings)
    """A fresh graph on `device`; raises what torch raises."""
    x = torch.zeros(1, device=device)

    def run() -> None:
        x.add_(1)
        x.mul_(2)
        x.add_(1)

    run()  # loads the kernels, which cannot be done while capturing
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        run()

    def launch(executable: Any) -> int:  # noqa: ANN401 (untyped bindings)
        with torch.cuda.stream(stream):
            x.zero_()
            _call(runtime, "cudaGraphLaunch", executable, stream.cuda_stream)
            return int(x.item())

    return Tiny(runtime, graph.raw_cuda_graph(), launch, graph)


def _call(runtime: Any, name: str, *arguments: Any) -> Any:  # noqa: ANN401 (untyped bindings)
    status, *values = getattr(runtime, name)(*arguments)
    if status.value:
        msg = f"{name} fails with {status.name}"
        raise MeasurementError(msg)
    return values[0] if len(values) == 1 else values


class Feature(NamedTuple):
    """One thing to try."""

    topic: str
    attempt: Callable[[Tiny], str]
    """Does it and says what it saw; raises MeasurementError where it cannot."""

    meaning: str
    """What is lost without it."""

    fix: str


def findings(device: torch.device, runtime: Any) -> tuple[Finding, ...]:  # noqa: ANN401
    """Try every feature on a graph of its own, so that none spoils another's."""
    return tuple(tried(item, lambda: capture(device, runtime)) for item in FEATURES)


def tried(feature: Feature, make: Callable[[], Tiny]) -> Finding:
    """The feature, on a graph that is made for it."""
    try:
        found = feature.attempt(make())
    except (MeasurementError, RuntimeError, TypeError) as error:
        # TypeError: a torch whose graphs do not know `keep_graph`.
        return Finding(
            feature.topic,
            State.MISSING,
            first_line(error),
            feature.meaning,
            feature.fix,
            blocks=feature.topic == CAPTURE,
        )
    return Finding(feature.topic, State.OK, found)


def _kept(tiny: Tiny) -> str:
    executable = tiny.call("cudaGraphInstantiate", tiny.raw, 0)
    try:
        _expect(tiny.launch(executable), _FULL, "a launch of the captured graph")
    finally:
        tiny.call("cudaGraphExecDestroy", executable)
    return f"torch {torch.__version__} hands over the graph that it captured"


def _edge_data(tiny: Tiny) -> str:
    """Plain edges must read as zeros; freed memory does not."""
    count = tiny.edge_count()
    _expect(count, len(tiny.nodes()) - 1, "edges of three kernels in a row")
    _, _, data, _ = tiny.call("cudaGraphGetEdges", tiny.raw, count)
    read = [(int(d.from_port), int(d.to_port), int(d.type)) for d in data]
    _expect(read, [(0, 0, 0)] * count, "data of plain edges")
    return "plain edges read as plain"


def _switched(tiny: Tiny) -> str:
    executable = tiny.call("cudaGraphInstantiate", tiny.raw, 0)
    node = tiny.nodes()[1]
    try:
        tiny.call("cudaGraphNodeSetEnabled", executable, node, 0)
        enabled = tiny.call("cudaGraphNodeGetEnabled", executable, node)
        _expect(enabled, 0, "the state of a disabled node")
        _expect(tiny.launch(executable), _WITHOUT_SECOND, "a launch without the node")
        tiny.call("cudaGraphNodeSetEnabled", executable, node, 1)
        _expect(tiny.launch(executable), _FULL, "a launch with the node again")
    finally:
        tiny.call("cudaGraphExecDestroy", executable)
    return "a kernel was disabled, and enabled again"


def _rewired(tiny: Tiny) -> str:
    source, target, _ = tiny.nodes()
    edge = (tiny.raw, [source], [target], None, 1)
    tiny.call("cudaGraphRemoveDependencies", *edge)
    _expect(tiny.edge_count(), 1, "edges after one was removed")
    tiny.call("cudaGraphAddDependencies", *edge)
    _expect(tiny.edge_count(), 2, "edges after it was added again")
    return "an edge was removed, and added again"


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        msg = f"{what}: {seen}, where {wanted} was expected"
        raise MeasurementError(msg)


CAPTURE: Final = "keep_graph"

FEATURES: Final = (
    Feature(
        CAPTURE,
        _kept,
        "with cuda-bindings installed, profile cannot capture on this GPU",
        "pip install 'torch>=2.9', or uninstall cuda-bindings to replay through torch",
    ),
    Feature(
        "edge data",
        _edge_data,
        "programmatic edges cannot be told from full ones, so no arm can be serialised",
        "pip install 'cuda-bindings>=13.3,<14'",
    ),
    Feature(
        "node enable",
        _switched,
        "regions cannot be knocked out of a captured graph",
        "install a driver for CUDA 13 (580 or newer)",
    ),
    Feature(
        "edge removal",
        _rewired,
        "a captured graph cannot be serialised",
        "install a driver for CUDA 13 (580 or newer)",
    ),
)

TOPICS: Final = tuple(feature.topic for feature in FEATURES)


PACKAGES: Final = ("cuda-bindings",)

_MAJOR: Final = 13  # of CUDA and its bindings, which the extra is made for


def bindings() -> Finding:
    """The package through which graphs are read node by node."""
    version = installed("cuda-bindings")
    found = version_of(version)
    fix = "pip install 'layerscope[cuda]'"
    if found is None:
        return Finding(
            "cuda-bindings",
            State.MISSING,
            "not installed",
            "graphs are replayed through torch and kernels are mapped by order; "
            "no experiments on graphs",
            fix,
        )
    if found[0] != _MAJOR:
        meaning = f"layerscope is made for {_MAJOR}.x"
        return Finding("cuda-bindings", State.LIMITED, version, meaning, fix)
    return Finding("cuda-bindings", State.OK, version)


def programmatic(architecture: str) -> Finding:
    """Whether a kernel can start before the one that it depends on has ended.

    CUDA C++ Programming Guide: programmatic dependent launch, compute capability 9.0.
    """
    topic = "programmatic edges"
    if int(architecture.removeprefix("sm_")) >= _PROGRAMMATIC_SM:
        return Finding(topic, State.OK, f"{architecture} launches dependents early")
    return Finding(
        topic,
        State.NOT_APPLICABLE,
        f"{architecture} has none; kernels of a stream do not overlap",
    )


_PROGRAMMATIC_SM: Final = 90
