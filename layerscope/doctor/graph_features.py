"""What can be done with a captured CUDA graph, tried on three kernels of its own.

As ``layerscope profile`` does it: edges through the driver's library, all else through
the CUDA runtime. Nothing here waits for another kernel, and the graph is seen by nobody
else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from layerscope.doctor.versions import first_line, installed, version_of
from layerscope.errors import MeasurementError
from layerscope.graphs.cuda_edges import Edges, driver_library
from layerscope.graphs.replay import Link
from layerscope.report.diagnosis import Finding, State

_FULL: Final = 3
"""What the kernels make of 0: + 1, × 2, + 1."""

_WITHOUT_SECOND: Final = 2

_ROW: Final = (Link(0, 1), Link(1, 2))
"""The edges between them, as torch captures them."""


@dataclass(frozen=True, slots=True)
class Tiny:
    """A captured graph of three kernels in a row on one number."""

    runtime: Any
    """``cuda.bindings.runtime``."""

    raw: Any
    """``cudaGraph_t``."""

    edges: Edges
    """Of the same graph."""

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

    def nodes(self) -> list[int]:
        """Handles in creation order."""
        _, count = self.call("cudaGraphGetNodes", self.raw)
        nodes, _ = self.call("cudaGraphGetNodes", self.raw, count)
        return [int(node) for node in nodes[:count]]

    def links(self) -> tuple[Link, ...]:
        """The edges that it has now, with their data."""
        return self.edges.read({handle: n for n, handle in enumerate(self.nodes())})


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

    raw = graph.raw_cuda_graph()
    return Tiny(runtime, raw, Edges(driver_library(), raw), launch, graph)


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

    blocks: bool = False
    """Whether nothing can be captured without it."""


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
            blocks=feature.blocks,
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
    """Edges between torch's kernels are full; wrong data would make others of them."""
    _expect(len(tiny.links()), len(_ROW), "edges of three kernels in a row")
    _expect(_full_edges(tiny), len(_ROW), "full edges among them")
    return "full edges read as full"


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
    first, _ = _ROW
    tiny.edges.remove([first], tiny.nodes())
    _expect(_full_edges(tiny), len(_ROW) - 1, "full edges after one was removed")
    tiny.edges.add([first], tiny.nodes())
    _expect(_full_edges(tiny), len(_ROW), "full edges after it was added again")
    return "an edge was removed, and added again"


def _full_edges(tiny: Tiny) -> int:
    return sum(link in _ROW for link in tiny.links())


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        msg = f"{what}: {seen}, where {wanted} was expected"
        raise MeasurementError(msg)


_THROUGH_TORCH: Final = "or uninstall cuda-bindings to replay through torch"
_DRIVER: Final = "install a driver for CUDA 13 (580 or newer)"

FEATURES: Final = (
    Feature(
        "keep_graph",
        _kept,
        "with cuda-bindings installed, profile cannot capture on this GPU",
        f"pip install 'torch>=2.9', {_THROUGH_TORCH}",
        blocks=True,
    ),
    Feature(
        "edge data",
        _edge_data,
        "profile reads the edges of every graph that it captures, so it cannot start",
        f"{_DRIVER}, {_THROUGH_TORCH}",
        blocks=True,
    ),
    Feature(
        "node enable",
        _switched,
        "no region can be taken out of a captured graph",
        _DRIVER,
    ),
    Feature(
        "edge removal",
        _rewired,
        "arms whose kernels overlap have no serial twin, and a ledger from records "
        "alone",
        _DRIVER,
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
            "graphs are replayed through torch and kernels are mapped by order; no "
            "experiments on graphs, no limits, no self-test",
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
