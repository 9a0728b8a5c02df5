"""Perfetto's own trace processor, asked in SQL; tests skip where it is missing."""

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

from tests.needed import VIEWER

FOLDER = Path(__file__).parent


def need_viewer() -> Path:
    """The folder of Perfetto's viewer; skips the test where `make browsers` was not."""
    if not VIEWER.is_dir():
        pytest.skip("Perfetto is not installed: make browsers")
    return VIEWER


def ask(trace: bytes, *queries: str) -> list[pl.DataFrame]:
    """What the trace processor answers to each query about `trace`."""
    need_viewer()
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: make browsers")
    protos = ProtoFactory(PlatformDelegate())
    method = protos.TraceProcessorRpc
    asked = protos.TraceProcessorRpcStream()
    asked.msg.add(request=method.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
    asked.msg.add(request=method.TPM_FINALIZE_TRACE_DATA)
    for query in queries:
        message = asked.msg.add(request=method.TPM_QUERY_STREAMING)
        message.query_args.sql_query = query
    for number, message in enumerate(asked.msg):
        message.seq = number
    done = subprocess.run(
        [node, str(FOLDER / "processor.cjs")],
        input=asked.SerializeToString(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    results = [protos.QueryResult() for _ in queries]
    answered = 0
    for message in protos.TraceProcessorRpcStream.FromString(done.stdout).msg:
        assert not message.append_result.error
        if message.HasField("query_result"):
            results[answered].MergeFrom(message.query_result)
            answered += message.query_result.batch[-1].is_last_batch
    assert answered == len(queries)
    assert [result.error for result in results] == [""] * len(queries)
    return [
        _frame(QueryResultIterator(result.column_names, result.batch))
        for result in results
    ]


def _frame(result: QueryResultIterator) -> pl.DataFrame:
    cells = result.cells.tolist()
    width = result.column_count
    rows = [cells[place : place + width] for place in range(0, len(cells), width)]
    return pl.DataFrame(rows, schema=result.column_names, orient="row")
