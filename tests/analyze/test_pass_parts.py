from dataclasses import replace

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyze.pass_parts import (
    Limits,
    RecordedPass,
    furthest_region,
    limits,
    recorded_pass,
)
from layerscope.analyze.shares import increments
from layerscope.analyze.swept import sweep_run
from layerscope.run import Run
from layerscope.run_header import Bound
from tests import edited, handmade


def renamed(run: Run, **names: str) -> Run:
    """`run`, with other names of kernels."""
    return replace(
        run, kernels=run.kernels.with_columns(name=pl.col("name").replace(names))
    )


def test_every_advance_is_in_one_part() -> None:
    """Of 30,500 ns, 1,000 ns of gap end at `attend`, 500 at `experts`."""
    run = edited.run(programmatic={"fused": [2, 5, 8, 11]})
    assert recorded_pass(sweep_run(run), "fused") == RecordedPass(
        kernels=3.0,
        short_kernels=0.0,
        launch_gap_ns=1_000.0,
        programmatic_gap_ns=500.0,
        short_ns=0.0,
        talking_ns=0.0,
        working_ns=29_000.0,
    )


def test_kernels_as_short_as_the_smallest_read_are_launches() -> None:
    """`project` takes 5,000 ns, of which 4,000 advance the pass."""
    reads = [msgspec.structs.replace(edited.READS[0], duration_ns=5_000.0)]
    found = recorded_pass(sweep_run(edited.run(reads=reads)), "fused")
    assert found is not None
    assert (found.short_kernels, found.short_ns) == (1.0, 4_000.0)
    assert found.pass_ns == 30_500.0


@pytest.mark.parametrize(("tp", "shard_shaped", "talking_ns"), [
    (1, False, 0.0), (2, False, 6_000.0), (2, True, 0.0),
])  # fmt: skip
def test_collectives_count_where_ranks_are_real(
    *, tp: int, shard_shaped: bool, talking_ns: float
) -> None:
    """Their gaps are theirs too: 1,000 ns before the 5,000 of `project`."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, tp=tp, shard_shaped=shard_shaped)
    run = edited.run(study=msgspec.structs.replace(study, spec=spec))
    found = recorded_pass(
        sweep_run(renamed(run, project="ncclDevKernel_AllReduce_Sum_bf16")), "reference"
    )
    assert found is not None
    assert found.talking_ns == talking_ns
    assert found.pass_ns == 41_000.0


def test_without_records_there_is_no_pass() -> None:
    """An arm that was not recorded has none."""
    run = edited.run()
    bare = replace(run, kernels=run.kernels.clear())
    assert recorded_pass(sweep_run(bare), "fused") is None
    assert recorded_pass(sweep_run(run), "nothing") is None


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 50_000), st.integers(0, 20_000)),
        min_size=12,
        max_size=12,
    )
)
def test_parts_add_up_to_the_increment(times: list[tuple[int, int]]) -> None:
    """Whatever kernels do, the parts are the mean increment of a pass."""
    run = handmade.run(programmatic={"fused": [1, 4, 7, 10]})
    one = (pl.col("arm") == "fused") & (pl.col("capture") == 0)
    starts, durations = zip(*times, strict=True)
    kernels = run.kernels.filter(one, pl.col("replay") == 0).with_columns(
        start_ns=pl.Series(starts), duration_ns=pl.Series(durations)
    )
    found = recorded_pass(sweep_run(replace(run, kernels=kernels)), "fused")
    assert found is not None
    assert found.pass_ns == pytest.approx(increments(kernels)["increment_ns"].mean())


def test_what_an_arm_is_held_against() -> None:
    """Bounds of the standard chain, and the benefit that the twin shows.

    Kernels of the twin take as long as those of the captured graph: none waits.
    """
    assert limits(sweep_run(edited.run()), "fused") == Limits(
        one_read_ns=8_000.0,
        legal_ns=12_000.0,
        promised_ns=8_000.0,
        benefit_ns=4_000.0,
        longer_ns=0.0,
        exposed_wait_ns=0.0,
    )


def test_bounds_of_its_own_kernels_come_first() -> None:
    """Where both are there, only the legal order is that of the standard chain."""
    own = [
        Bound(
            arm="fused", name=name, pass_ns=pass_ns, low_ns=pass_ns, high_ns=pass_ns,
            kernels=1, bytes=6_000_000,
        )
        for name, pass_ns in (
            ("no PDL", 25_000),
            ("legal early start", 14_000),
            ("one read", 9_000),
        )
    ]  # fmt: skip
    found = limits(sweep_run(edited.run(bounds=[*own, *edited.BOUNDS])), "fused")
    assert (found.one_read_ns, found.promised_ns) == (9_000, 11_000)
    assert found.legal_ns == 12_000
    other = limits(sweep_run(edited.run(bounds=[*own, *edited.BOUNDS])), "reference")
    assert (other.one_read_ns, other.promised_ns) == (8_000, 8_000)


def test_without_bounds_one_read_is_from_the_curve() -> None:
    """6 MB are on the line of 2,000 ns for 1 MB and 4,000 ns for 4 MB."""
    found = limits(sweep_run(edited.run(bounds=[])), "fused")
    assert found.one_read_ns == pytest.approx(4_000 + 2_000 * 2 / 3)
    assert (found.legal_ns, found.promised_ns) == (None, None)


def test_nothing_measured_is_nothing_known() -> None:
    """A run of an older format has neither bounds nor twins."""
    assert limits(sweep_run(handmade.run()), "fused") == Limits(
        one_read_ns=None,
        legal_ns=None,
        promised_ns=None,
        benefit_ns=None,
        longer_ns=None,
        exposed_wait_ns=None,
    )


@pytest.mark.parametrize(
    ("delays_the_pass", "exposed_ns"),
    [
        # attend 11,500, project 19,000, experts 0 of 30,500; the twin has 30,000
        (False, 500),
        # attend 15,000, project 19,000, experts 10,000 of a pass that is 15,000 longer
        (True, 14_000),
    ],
)
def test_a_wait_costs_what_nothing_hides(
    *, delays_the_pass: bool, exposed_ns: float
) -> None:
    """`project` waits 15,000 ns inside itself, and another kernel may run meanwhile."""
    run = edited.run()
    captured = pl.col("experiment") == "captured"
    longer = pl.when(captured & (pl.col("name") == "project")).then(15_000).otherwise(0)
    later = pl.when(captured & (pl.col("name") == "experts")).then(15_000).otherwise(0)
    period = pl.when(captured).then(pl.col("pass_index") * 15_000).otherwise(0)
    kernels = run.kernels.with_columns(duration_ns=pl.col("duration_ns") + longer)
    if delays_the_pass:
        kernels = kernels.with_columns(
            start_ns=pl.col("start_ns") + later,
            pass_start_ns=pl.col("pass_start_ns") + period,
        )
    found = limits(sweep_run(replace(run, kernels=kernels)), "fused")
    assert (found.longer_ns, found.exposed_wait_ns) == (15_000, exposed_ns)


def test_the_region_furthest_from_its_read() -> None:
    """`attention` takes 16,000 ns and must read 2 MB, which takes 2,667."""
    assert furthest_region(sweep_run(edited.run()), "fused") == "attention"
    assert furthest_region(sweep_run(handmade.run()), "fused") == ""
