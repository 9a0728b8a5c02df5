"""What Perfetto's own trace processor makes of traces; skips where it is missing."""

from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.median_pass import pictured_kernels
from layerscope.analyze.shares import increments, pass_shares
from layerscope.render.perfetto import export_all, export_median
from layerscope.render.perfetto.picture import process_name
from layerscope.replays import load_without_kernels
from layerscope.run import Run, load
from tests.perfetto import runs
from tests.perfetto.processor import ask

ROOT = Path(__file__).parents[3]
OVERLAPPING = ROOT / "fixtures" / "h200-selftest" / "branches"
DRAFT = ROOT / "fixtures" / "h200" / "qwen3-30b-a3b-tp4-rows6-bfloat16" / "draft"

ERRORS = "select name, value from stats where value > 0 and severity != 'info'"
SLICES = """
select p.name as process, t.name as track, s.* from slice s
join process_track t on s.track_id = t.id join process p using (upid)
"""
KERNELS = f"""
select process, name, count(*) as kernels, sum(dur) as duration_ns,
  min(dur) as shortest_ns,
  sum(extract_arg(arg_set_id, 'debug.grid.x')) as blocks,
  sum(extract_arg(arg_set_id, 'debug.node')) as nodes
from ({SLICES}) where category = 'kernel' group by 1, 2 order by 1, 2
"""  # noqa: S608 (no value of a user's)
SHARES = f"""
select process, name as region, sum(dur) as share_ns from ({SLICES})
where category = 'region' and extract_arg(arg_set_id, 'debug.pass') between ? and ?
group by 1, 2 order by 1, 2
"""  # noqa: S608
INCREMENTS = f"""
select process, sum(dur) as increment_ns from ({SLICES})
where category = 'pass' and extract_arg(arg_set_id, 'debug.pass') between ? and ?
group by 1 order by 1
"""  # noqa: S608
HIDDEN = f"""
select process, sum(extract_arg(arg_set_id, 'debug.gap_ns')) as gap_ns,
  sum(extract_arg(arg_set_id, 'debug.hidden_ns')) as hidden_ns
from ({SLICES})
where category = 'kernel' and extract_arg(arg_set_id, 'debug.pass') between ? and ?
group by 1 order by 1
"""  # noqa: S608
GAPS = f"""
select process, sum(dur) as gap_ns from ({SLICES})
where category = 'gap' and extract_arg(arg_set_id, 'debug.pass') between ? and ?
group by 1 order by 1
"""  # noqa: S608
PARTS = f"""
select process, sum(dur) filter (where category = 'kernel') as kernel_ns,
  sum(dur) filter (where category = 'gap') as gap_ns,
  sum(dur) filter (where category = 'region') as region_ns,
  sum(dur) filter (where category = 'pass') as pass_ns
from ({SLICES}) group by 1 order by 1
"""  # noqa: S608
NESTING = """
select s.category, s.depth, p.category as parent, count(*) as slices,
  min(s.dur) >= 0 as ended,
  min(p.ts <= s.ts and s.ts + s.dur <= p.ts + p.dur) as within_parent
from slice s left join slice p on s.parent_id = p.id
group by 1, 2, 3 order by 1, 2, 3
"""
FLOWS = """
select extract_arg(o.arg_set_id, 'debug.node') as source,
  extract_arg(i.arg_set_id, 'debug.node') as target
from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
order by 1, 2
"""
RUNNING = """
select p.name as process, max(c.value) as most
from counter c join process_counter_track t on c.track_id = t.id
join process p using (upid) where t.name like 'kernels running%' group by 1 order by 1
"""


@pytest.fixture(scope="module", params=["made by hand", "recorded"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run with overlap on one stream, and one with overlap of streams."""
    if request.param == "recorded":
        return OVERLAPPING
    return runs.write(tmp_path_factory.mktemp("made") / "run")


def everything(folder: Path) -> bytes:
    """The trace of all passes."""
    file = BytesIO()
    export_all(load_without_kernels(folder), file)
    return file.getvalue()


def median(run: Run, arms: tuple[str, ...] = ()) -> bytes:
    """The trace of the median passes."""
    file = BytesIO()
    export_median(run, file, arms)
    return file.getvalue()


def named(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the process of each graph."""
    graphs = frame.select("arm", "experiment").unique()
    names = [process_name(*graph) for graph in graphs.rows()]
    processes = graphs.with_columns(process=pl.Series(names, dtype=pl.String))
    return frame.join(processes, on=["arm", "experiment"])


def used(query: str, last: int) -> str:
    """`query` of the passes that shares count."""
    return query.replace("between ? and ?", f"between 1 and {last - 1}")


def test_everything_adds_up(folder: Path) -> None:
    """Counts and sums in SQL are those of the run, to the nanosecond; no errors."""
    run = load(folder)
    last = run.kernels.select(pl.col("pass_index").max()).item()
    errors, kernels, regions, passes, parts, gaps = ask(
        everything(folder),
        ERRORS,
        KERNELS,
        *(used(query, last) for query in (SHARES, INCREMENTS, HIDDEN, GAPS)),
    )
    assert errors.rows() == []
    duration, name = pl.col("duration_ns"), ["process", "name"]
    expected = (
        named(run.kernels)
        .group_by(name)
        .agg(
            kernels=pl.len().cast(pl.Int64),
            duration_ns=duration.sum(),
            shortest_ns=duration.min(),
            blocks=pl.when(pl.col("grid_x").is_not_null().any()).then(
                pl.col("grid_x").sum()
            ),
            nodes=pl.col("node").sum(),
        )
    )
    assert_frame_equal(kernels, expected.sort(name))
    shares = named(pass_shares(run.kernels))
    share = ["process", "region"]
    owned = shares.filter(pl.col("share_ns") > 0).group_by(share)
    assert_frame_equal(regions, owned.agg(pl.col("share_ns").sum()).sort(share))
    moved = named(increments(run.kernels)).group_by("process")
    assert_frame_equal(passes, moved.agg(pl.col("increment_ns").sum()).sort("process"))
    of_kernels = shares.group_by("process").agg(pl.col("gap_ns", "hidden_ns").sum())
    assert_frame_equal(parts, of_kernels.sort("process"))
    assert_frame_equal(gaps, of_kernels.select("process", "gap_ns").sort("process"))


@pytest.mark.parametrize("path", [OVERLAPPING, DRAFT], ids=["branches", "draft"])
def test_median_passes_add_up(path: Path) -> None:
    """Sums of what is pictured are those in SQL, and all slices have ended; no errors.

    The first gap of the draft reaches over a round time of the trace.
    """
    run = load(path)
    errors, nesting, parts = ask(median(run), ERRORS, NESTING, PARTS)
    assert errors.rows() == []
    assert_nested(nesting)
    shown = named(pictured_kernels(run.kernels))
    advance = pl.col("gap_ns") + pl.col("duration_ns") - pl.col("hidden_ns")
    expected = shown.group_by("process").agg(
        kernel_ns=pl.col("duration_ns").sum(),
        gap_ns=pl.col("gap_ns").sum(),
        region_ns=advance.sum(),
        pass_ns=advance.sum(),
    )
    assert_frame_equal(parts, expected.sort("process"))


def test_slices_nest_as_meant(folder: Path) -> None:
    """Regions lie within passes; nothing else has a parent, and all have ended."""
    (nesting,) = ask(everything(folder), NESTING)
    assert_nested(nesting)


def assert_nested(nesting: pl.DataFrame) -> None:
    """What `NESTING` finds is as it should be."""
    rows = nesting.select(
        "category", "depth", "parent", "ended", "within_parent"
    ).rows()
    assert rows == [
        ("gap", 0, None, 1, None),
        ("kernel", 0, None, 1, None),
        ("pass", 0, None, 1, None),
        ("region", 1, "pass", 1, 1),
    ]


def test_flows_and_counters() -> None:
    """Flows lead along the edges between shown kernels; two kernels run at most."""
    errors, flows, running = ask(median(runs.run()), ERRORS, FLOWS, RUNNING)
    assert errors.rows() == []
    shown = runs.edges().filter(pl.col("target") < 3 * len(runs.OVERLAPPING))
    assert (
        flows.rows() == shown.select("source", "target").sort("source", "target").rows()
    )
    assert running.rows() == [
        ("fused", 2.0),
        ("fused (serial)", 1.0),
        ("reference", 1.0),
    ]


def test_the_question_of_the_documentation() -> None:
    """The SQL in docs/perfetto.md answers what it says, about the hand-made run."""
    document = (ROOT / "docs" / "perfetto.md").read_text(encoding="utf-8")
    query = document.partition("```sql\n")[2].partition("```")[0]
    (answer,) = ask(median(runs.run(), ("fused",)), query)
    assert answer.sort("arm", "region").rows() == [
        ("fused", "attention", 6, 1_170, 0),
        ("fused", "moe", 9, 2_400, 780),
        ("fused (serial)", "attention", 6, 1_170, 0),
        ("fused (serial)", "moe", 9, 1_500, 0),
    ]
