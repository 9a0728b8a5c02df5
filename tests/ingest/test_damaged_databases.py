from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.errors import InputError
from layerscope.schema import TRACE_KERNELS
from layerscope.trace import Trace
from tests.ingest.databases import database_file, nsys_file, read, rocpd_tables
from tests.ingest.packed import written
from tests.ingest.test_nsys import CALLS, KERNELS, RANGES, call, kernel, pid, span
from tests.ingest.test_rocpd import GUID, dispatch, run

EXAMPLES = 150


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small databases of both kinds, undamaged."""
    folder = tmp_path_factory.mktemp("whole")
    nodes = [
        {"globalTid": pid(9), "graphNodeId": at, "originalGraphNodeId": at // 2}
        for at in range(20)
    ]
    export = nsys_file(
        folder / "nsys",
        {
            KERNELS: [
                kernel(10 * at, 10 * at + 5, at, graphNodeId=at) for at in range(40)
            ],
            CALLS: [call(at, at + 1, at, "cudaLaunchKernel_v7000") for at in range(40)],
            RANGES: [span(at, at + 9, text=f"layer {at}") for at in range(40)],
            "CUDA_GRAPH_NODE_EVENTS": nodes,
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 4, "cudaId": 0, "pid": 9}],
        },
    )
    dispatches = [dispatch(10 * at, 10 * at + 5, 1) for at in range(40)]
    tables = rocpd_tables(GUID, run(kernel_dispatch=dispatches))
    rocpd = database_file(folder / "rocpd", tables)
    return [export, rocpd]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    which=st.integers(0, 1),
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=40))),
    kept=st.floats(0.05, 1.5),
)
def test_damage_is_refused_or_read(
    tmp_path: Path,
    wholes: list[Path],
    which: int,
    places: list[tuple[float, bytes]],
    kept: float,
) -> None:
    """Whatever is overwritten or cut off, there is a trace or a line that says why."""
    data = bytearray(wholes[which].read_bytes())
    for place, change in places:
        at = int(place * len(data))
        data[at : at + len(change)] = change
    path = written(tmp_path / "a", bytes(data[: int(kept * len(data))]))
    found = trace_or_reason(path)
    if isinstance(found, str):
        assert str(path) in found
        assert found.isprintable()
    else:
        assert found.kernels.columns == list(TRACE_KERNELS)
        assert (found.kernels["duration_ns"] >= 0).all()


def trace_or_reason(path: Path) -> Trace | str:
    """The trace in `path`, or why it has none."""
    try:
        return read(path)
    except InputError as error:
        return str(error)
