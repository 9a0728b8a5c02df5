"""The traces that no GPU made are those of their script, and hold what it planted."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import made_traces
from layerscope.ingest.traced_runs import read_as_run
from layerscope.trace_spec import TraceSpec, TraceSteps

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "traces"


@pytest.mark.parametrize("kind", made_traces.EXPERTS)
def test_files_are_up_to_date(kind: str) -> None:
    """What lies in fixtures is what the script writes, and says that it is made up."""
    packed = dict(made_traces.files())[f"made-{kind}.json.gz"]
    kept = (FOLDER / f"made-{kind}.json.gz").read_bytes()
    assert gzip.decompress(kept) == gzip.decompress(packed)
    assert "no GPU" in json.loads(gzip.decompress(kept))["made_by"]


@pytest.mark.parametrize("kind", made_traces.EXPERTS)
def test_what_was_planted_is_found(kind: str) -> None:
    """Eight layers in every step, one prefill and six decodes, every kernel placed."""
    run = read_as_run(FOLDER / f"made-{kind}.json.gz")
    spec = run.header.study.spec
    assert isinstance(spec, TraceSpec)
    assert spec.steps == (
        TraceSteps(
            arm="decode", kind="decode", device=0, steps=6, layers=8, variants={"A": 8}
        ),
        TraceSteps(
            arm="prefill",
            kind="prefill",
            device=0,
            steps=1,
            layers=8,
            variants={"A": 8},
        ),
    )
    assert run.kernels.height == 7 * (8 * 14 + 4)
    assert run.kernels.filter(region="unassigned").is_empty()
    assert run.header.warnings == []
