import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.shares import kernel_shares
from layerscope.analyze.swept import sweep_run
from tests import edited


def test_the_run_is_swept_once() -> None:
    """Its header, its times and its shares of kernels are those of the run."""
    run = edited.run()
    found = sweep_run(run)
    assert found.header is run.header
    assert_frame_equal(found.times, pass_times(run.samples))
    assert_frame_equal(found.kernels, kernel_shares(run.kernels))


def test_a_graph_is_swept_as_it_would_be_alone() -> None:
    """Its rows are the shares of its own kernels; of no graph there are none."""
    run = edited.run()
    mine = (pl.col("arm") == "fused") & (pl.col("experiment") == "serial")
    found = sweep_run(run)
    assert found.graph("fused", "serial").height > 0
    alone = kernel_shares(run.kernels.filter(mine))
    assert_frame_equal(found.graph("fused", "serial"), alone)
    assert found.graph("nobody").is_empty()
