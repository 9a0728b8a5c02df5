import json

from layerscope.render.json import render
from layerscope.report import Fact, Report, build_report
from layerscope.run import Run
from tests import handmade


def rendered(run: Run) -> dict[str, object]:
    """The parsed JSON of a run."""
    parsed: dict[str, object] = json.loads(render(build_report(run), run))
    return parsed


def test_tables_have_raw_numbers_under_stable_keys() -> None:
    """A row is an object: times in ns, sizes in bytes, intervals in parts."""
    document = json.loads(render(build_report(handmade.run()), handmade.run()))
    layer, regions, *_ = document["tables"]
    assert layer["rows"][1] == {
        "arm": "fused",
        "anchor_ns": {
            "value": 30_000.0,
            "low": 30_000.0,
            "high": 30_000.0,
            "relative": None,
            "verdict": "",
            "reason": "",
        },
        "change_ns": {
            "value": -10_000.0,
            "low": -10_000.0,
            "high": -10_000.0,
            "relative": -0.25,
            "verdict": "faster",
            "reason": "",
        },
        "traffic_bytes": {"touched": 6_000_000, "required": 6_000_000, "ratio": 1.0},
        "profiled_ns": 30_500.0,
        "kernels": 3.0,
    }
    assert regions["columns"][2] == {
        "key": "share_mean_ns",
        "title": "mean share",
        "kind": "time",
        "unit": "ns",
    }
    assert regions["has_total"] is True


def test_the_rest_of_the_document() -> None:
    """Facts, notes, warnings and the run's own header are there by name."""
    run = handmade.run()
    document = rendered(run)
    assert list(document) == [
        "title",
        "path",
        "headlines",
        "differences",
        "facts",
        "tables",
        "notes",
        "warnings",
        "run",
        "parts",
    ]
    assert document["parts"] == []
    assert document["title"] == "paper-moe, layer 0"
    assert document["path"] == "paper-run"
    header = document["run"]
    assert isinstance(header, dict)
    assert header["status"] == "complete"
    assert header["study"]["spec"]["model"]["name"] == "paper-moe"


def test_a_report_of_two_runs_has_its_parts_too() -> None:
    """Without a run, its parts are there in the same form, headlines first."""
    draft = Report("draft", (), (), headlines=(Fact("fused", "slower"),))
    report = Report("layer", (), (), differences=("tp: 1 against 4",), parts=(draft,))
    document = json.loads(render(report))
    assert document["differences"] == ["tp: 1 against 4"]
    (part,) = document["parts"]
    assert (part["title"], part["headlines"]) == ("draft", {"fused": "slower"})
    assert part["parts"] == []


def test_what_is_not_finite_is_null() -> None:
    """The open ends of an interval are null: NaN and infinity are no JSON."""
    run = handmade.run()
    one_round = run.samples.filter(run.samples["round"] == 0).filter(
        run.samples.filter(run.samples["round"] == 0)["capture"] == 0
    )
    stopped = Run(run.header, one_round, run.kernels.clear(), run.path)
    text = render(build_report(stopped), stopped)
    (table,) = json.loads(text)["tables"]
    assert table["rows"][0]["anchor_ns"]["low"] is None
    assert table["rows"][0]["anchor_ns"]["value"] == 40_000.0
