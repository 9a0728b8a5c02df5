import polars as pl
from polars.testing import assert_frame_equal

from layerscope.ingest.step_rows import step_rows
from layerscope.trace_spec import TraceSteps
from tests.ingest import paper_trace

_SHOWN = [
    *("arm", "experiment", "capture", "round", "replay", "pass_index", "node"),
    *("name", "pass_start_ns", "start_ns", "duration_ns"),
]


def placed(**changes: pl.Expr) -> pl.DataFrame:
    """The kernels of the trace on paper, with other columns."""
    return paper_trace.kernels().with_columns(**changes)


def test_a_step_is_a_replay_and_a_layer_a_pass() -> None:
    """What is outside of layers belongs to no pass, before them and after."""
    found = step_rows(paper_trace.kernels(), {}).kernels
    same = {"arm": "prefill", "experiment": "captured", "capture": 0}
    same |= {"round": 1, "replay": 1}
    rows = [
        (-1, 0, "embed", 0, 0, 4_000),
        *(
            row
            for layer, begin_ns in enumerate((5_000, 354_000, 703_000))
            for row in (
                (layer, 3 * layer + 1, "attend", begin_ns, 0, 100_000),
                (layer, 3 * layer + 2, "gate_up", begin_ns, 100_000, 200_000),
                (layer, 3 * layer + 3, "down", begin_ns, 298_000, 50_000),
            )
        ),
        (-1, 10, "head", 0, 1_051_000, 8_000),
    ]
    expected = [(*same.values(), *row) for row in rows]
    assert_frame_equal(
        found.filter(pl.col("arm") == "prefill").select(_SHOWN),
        pl.DataFrame(expected, schema=_SHOWN, orient="row"),
    )
    decode = found.filter(pl.col("arm") == "decode")
    assert decode.select("replay").unique().to_series().sort().to_list() == [0, 2]


def test_what_steps_hold_is_told() -> None:
    """Steps, layers of most steps, and their variants, an arm each."""
    found = step_rows(paper_trace.kernels(), {})
    assert found.steps == (
        TraceSteps(
            arm="decode", kind="decode", device=0, steps=2, layers=4, variants={"A": 4}
        ),
        TraceSteps(
            arm="prefill",
            kind="prefill",
            device=0,
            steps=1,
            layers=3,
            variants={"A": 3},
        ),
    )
    assert (found.outside, found.outside_ns) == (3, 1_500)


def test_launches_are_kept() -> None:
    """A trace tells the sum of shared memory alone, which is no static one."""
    kernels = step_rows(paper_trace.kernels(), {}).kernels
    names = ["grid_x", "block_x", "registers"]
    names += ["static_shared_bytes", "dynamic_shared_bytes"]
    assert kernels.select(names).unique().rows() == [(132, 256, 64, None, 2_048)]


def test_variants_of_the_usual_step() -> None:
    """Of steps that differ, the most common counts, or else the first."""
    layer = pl.col("layer")
    mixed = placed(
        variant=pl.when(layer == 1).then(pl.lit("B")).otherwise(pl.col("variant"))
    )
    first = step_rows(mixed, {}).steps[0]
    assert first.variants == {"A": 3, "B": 1}
    assert first.layer_variants == {"0:A 1:B 2:A 3:A": [0, 2]}


def test_steps_that_are_cut() -> None:
    """They are listed, and the layers of a step are those of others, if there are."""
    is_short = (pl.col("step") == 0) & (pl.col("layer") == 3)
    short = placed(layer=pl.when(~is_short).then("layer"))
    decode = step_rows(short, {}, cut={(0, 0), (1, 2)}).steps[0]
    assert (decode.cut_steps, decode.layers, decode.is_cut) == ([0], 4, False)
    all_cut = step_rows(short, {}, cut={(0, 0), (0, 2)}).steps[0]
    assert (all_cut.cut_steps, all_cut.layers, all_cut.is_cut) == ([0, 2], 3, True)


def test_steps_without_layers_are_whole_passes() -> None:
    """Their kernels are all of pass 0."""
    none = pl.lit(None, pl.Int64)
    found = step_rows(placed(layer=none, variant=pl.lit(None, pl.String)), {})
    assert found.kernels["pass_index"].unique().to_list() == [0]
    assert [(each.layers, each.unit) for each in found.steps] == [(0, "step")] * 2


def test_a_trace_without_steps_is_one() -> None:
    """Its arm is called a step, and nothing is outside."""
    none = pl.lit(None, pl.Int64)
    found = step_rows(placed(step=none, step_kind=pl.lit(None, pl.String)), {})
    assert found.kernels["arm"].unique().to_list() == ["step"]
    assert found.kernels.height == paper_trace.kernels().height
    assert found.outside == 0


def test_devices_are_told_apart() -> None:
    """Each has arms of its own, as each has kernels and steps of its own."""
    both = pl.concat([paper_trace.kernels(), placed(device=pl.lit(1, pl.Int64))])
    found = step_rows(both, {"rank": "3"})
    assert [each.arm for each in found.steps] == [
        "decode:rank=3:device=0",
        "decode:rank=3:device=1",
        "prefill:rank=3:device=0",
        "prefill:rank=3:device=1",
    ]
    assert {each.rank for each in found.steps} == {3}
    replay = found.kernels.filter(pl.col("arm") == "prefill:rank=3:device=1")
    assert replay["node"].to_list() == list(range(11))


def test_a_device_without_a_number_is_one() -> None:
    """Some files number none."""
    found = step_rows(placed(device=pl.lit(None, pl.Int64)), {})
    assert [each.device for each in found.steps] == [None, None]
    assert found.kernels.height == 39


def test_streams_of_several_contexts_have_new_numbers() -> None:
    """The stream 7 of one is not that of another; without a clash nothing changes."""
    assert step_rows(paper_trace.kernels(), {}).renumbered == 0
    name = pl.col("name")
    other = pl.when(name == "down").then(2).otherwise(pl.col("context"))
    found = step_rows(placed(context=other), {})
    assert found.renumbered == 2
    streams = found.kernels.select("name", "stream").unique().sort("name", "stream")
    assert dict(streams.rows()) == {
        "attend": 0,
        "down": 1,
        "embed": 0,
        "gate_up": 0,
        "head": 0,
    }
