from dataclasses import replace

import msgspec
import polars as pl
import pytest

from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import DType
from layerscope.report import Interval, Report, build_report
from layerscope.run import Run
from layerscope.run_header import RegionBytes
from layerscope.study import CallableSpec, Spec
from tests import handmade

DRAFT = DraftSpec(model="paper-moe", vocab_size=151_936)


def run_of(spec: Spec, *, l2_bytes: int = 60_000_000, **header: object) -> Run:
    """The hand-made run, had it been one of `spec`."""
    environment = handmade.environment()
    device = msgspec.structs.replace(environment.device, l2_bytes=l2_bytes)
    environment = msgspec.structs.replace(environment, device=device)
    study = msgspec.structs.replace(handmade.study(), spec=spec)
    return handmade.run(
        study=study,
        environment=environment,
        **{"decisions": [], "bytes": [], "distinct_experts": []} | header,
    )


def facts(report: Report) -> dict[str, str]:
    """The header of a report by label."""
    return {fact.label: fact.text for fact in report.facts}


def test_a_draft_says_what_it_draws_from() -> None:
    """Positions, vocabulary, types, and the slice of a rank."""
    spec = msgspec.structs.replace(
        DRAFT, tp=4, shard_shaped=True, requests=2, weight_dtype=DType.FLOAT8_E4M3
    )
    report = build_report(run_of(spec))
    assert report.title == "draft of paper-moe"
    found = facts(report)
    assert found["draft"] == (
        "5 greedy tokens, one after another, for 2 requests; base logits given, "
        "bigram bias of rank 256"
    )
    assert found["vocabulary"] == "151,936 tokens, 37,984 on this rank"
    assert found["types"] == "bfloat16 w1, float8_e4m3 w2, float32 logits"
    assert found["ranks"] == (
        "shard-shaped: slice of one rank of 4, communication left out"
    )
    assert found["numerics"].startswith("logit below the best token's and bound: ")
    assert "model" not in found
    assert "routing" not in found


@pytest.mark.parametrize(
    ("l2_bytes", "first", "later"),
    [
        (
            30_000_000,
            "cold at the first token",
            "cold again at later tokens: it is larger than an L2 of 30.00 MB",
        ),
        (
            60_000_000,
            "cold at the first token",
            "cold in part at later tokens: it is about as large as an L2 of 60.00 MB",
        ),
        (
            160_000_000,
            "even a pass's first token may find it in the L2",
            "warm by nature at later tokens: it fits an L2 of 160.0 MB",
        ),
        (
            0,
            "where a pass's first token finds it is not known here",
            "whether later tokens find it in a cache is not known here",
        ),
    ],
)
def test_every_arm_says_where_it_finds_w2(
    l2_bytes: int, first: str, later: str
) -> None:
    """Cold at the first token if so; then as far as the cache holds it, or on chip."""
    reads = {"reference": 5, "fused": 1}
    run = run_of(DRAFT, l2_bytes=l2_bytes, w2_reads=reads)
    assert facts(build_report(run))["w2"] == (
        f"77.79 MB, a copy a pass: {first}; reference reads it 5 times a pass, {later}"
        "; fused reads it once a pass, and keeps it on chip"
    )


def test_a_draft_is_a_part_of_the_report_of_its_layer() -> None:
    """The machine is told once, and so is how to read the tables."""
    layer = handmade.run()
    report = build_report(replace(layer, draft=run_of(DRAFT)))
    (part,) = report.parts
    assert part.title == "draft of paper-moe"
    assert "device" in facts(report)
    assert "device" not in facts(part)
    assert not any(note.startswith("anchor: ") for note in part.notes)
    assert part.tables[0].title == (
        "draft: one pass, change against unfused torch (reference)"
    )
    assert build_report(layer) == replace(report, parts=())


def test_the_roles_of_a_draft_are_a_table_of_each_arm_that_names_them() -> None:
    """They add up to the pass as regions do; the A/A capture needs none."""
    run = run_of(DRAFT)
    region, arm = pl.col("region"), pl.col("arm")
    role = (
        pl.when(arm == "fused")
        .then(None)
        .otherwise(
            region.replace_strict(
                {"attention": "token_1", "moe": "token_2"}, default=None
            )
        )
    )
    kernels = run.kernels.with_columns(role=role, region=pl.lit("draft"))
    report = build_report(replace(run, kernels=kernels))
    (table,) = [t for t in report.tables if t.title.startswith("roles")]
    assert table.title == "roles of reference, a profiled pass"
    assert [column.title for column in table.columns] == [
        *("role", "kernels", "mean share", "median share", "gap", "sum", "hidden")
    ]
    assert table.rows == (
        ("token_1", 1.0, 22_000.0, 22_000.0, 2_000.0, 20_000.0, 0.0),
        ("(none)", 1.0, 6_000.0, 6_000.0, 1_000.0, 5_000.0, 0.0),
        ("token_2", 1.0, 13_000.0, 13_000.0, 0.0, 13_000.0, 0.0),
    )


def test_callables_say_what_they_are_called_on() -> None:
    """Inputs, whether these change, and where regions come from."""
    spec = CallableSpec(
        inputs=("bfloat16 [6, 2048]", "int64 [6]"),
        regions={"attention": ["self_attn"], "moe": ["mlp*", "gate"]},
        tolerance=1e-2,
    )
    report = build_report(run_of(spec))
    assert report.title == "callables"
    found = facts(report)
    assert found["inputs"] == "bfloat16 [6, 2048], int64 [6]"
    assert found["values"] == "32 different ones, changed with the input step"
    assert found["regions"] == "attention = self_attn; moe = mlp*, gate"
    assert report.tables[0].title == "call: one pass, change against reference"
    assert not any("unfused torch" in note for note in report.notes)
    fixed = run_of(msgspec.structs.replace(spec, regions={}))
    study = msgspec.structs.replace(fixed.header.study, steps=1)
    fixed = replace(fixed, header=msgspec.structs.replace(fixed.header, study=study))
    found = facts(build_report(fixed))
    assert found["values"] == "the same at every replay"
    assert found["regions"] == "as the code marks them"


def test_an_arm_that_runs_the_layer_whole_has_its_bytes_against_all_regions() -> None:
    """Touched and required of the pass, though no region can be told."""
    row = RegionBytes(arm="fused", region="other", touched=300, required=100)
    report = build_report(handmade.run(bytes=[row]))
    columns = [column.key for column in report.tables[0].columns]
    (fused,) = [r for r in report.tables[0].rows if r[0] == "fused"]
    traffic = fused[columns.index("traffic_bytes")]
    assert traffic is not None
    assert (traffic.touched, traffic.required, traffic.ratio) == (300, 100, 3.0)  # type: ignore[union-attr]


def renamed(run: Run, arm: str, region: str) -> Run:
    """The run, had every kernel of `arm` been in `region`."""
    is_arm = pl.col("arm") == arm
    name = pl.when(is_arm).then(pl.lit(region)).otherwise(pl.col("region"))
    return replace(run, kernels=run.kernels.with_columns(region=name))


def changes(report: Report, arm: str) -> dict[object, object]:
    """What the table of an arm's regions says of their changes."""
    title = f"regions of {arm}, "
    (table,) = [t for t in report.tables if t.title.startswith(title)]
    return {row[0]: row[-1] for row in table.rows}


def test_regions_that_the_base_has_not_are_compared_with_nothing() -> None:
    """Kernels of several regions at once would be slower than none at all."""
    report = build_report(renamed(handmade.run(), "fused", "other"))
    assert changes(report, "fused") == {"other": None, "total": None}
    assert (
        "fused: changes of its regions have no verdict: its regions are not those of "
        "reference"
    ) in report.notes


def test_regions_of_foreign_code_are_not_judged_on_a_cpu() -> None:
    """There marks and hooks take time of their own, in one arm more than another."""
    spec = CallableSpec(inputs=(), tolerance=0.0)
    run = run_of(spec)
    judged = changes(build_report(run), "fused")["attention"]
    assert isinstance(judged, Interval)
    assert judged.verdict
    device = msgspec.structs.replace(run.header.environment.device, type="cpu")
    machine = msgspec.structs.replace(run.header.environment, device=device)
    header = msgspec.structs.replace(run.header, environment=machine)
    report = build_report(replace(run, header=header))
    told = changes(report, "fused")["attention"]
    assert isinstance(told, Interval)
    assert told == replace(judged, verdict="", reason="")
    assert (
        "fused: changes of its regions have no verdict: on a CPU marks and hooks take "
        "time of their own"
    ) in report.notes


def test_a_draft_that_was_planned_and_is_missing_is_a_warning() -> None:
    """Else a run that was stopped in its draft would look complete."""
    study = msgspec.structs.replace(handmade.study(), draft=DRAFT)
    run = handmade.run(study=study)
    line = "the draft is missing: it was not measured, or stopped before a sample"
    assert line in build_report(run).warnings
    assert line not in build_report(replace(run, draft=run_of(DRAFT))).warnings
