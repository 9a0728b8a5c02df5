from pathlib import Path

import pytest

from layerscope import __version__
from layerscope.catalog import backends_report, listings
from layerscope.environment import DeviceFacts
from layerscope.layers.spec import DType, LayerSpec
from layerscope.report import Report, Table
from tests import handmade, plugins

SPEC = LayerSpec(model=handmade.model(), dtype=DType.FLOAT32, context=16)
CPU = DeviceFacts(type="cpu", name="Paper CPU")
OWN = f"layerscope {__version__}"

FUSED = """
    from layerscope.layers.spec import Family
    from layerscope.plugin import BackendSpec, Numerics, Requires, Switch
    from layerscope.regions import Region

    BACKEND = BackendSpec(
        name="catalog-fused",
        api_version=1,
        summary="a backend on paper",
        covers={Family.QWEN3_MOE: (Region.O_PROJ_ALL_REDUCE, Region.MOE)},
        build=print,
        requires=Requires(device_types=("cuda",), max_rows=4),
        check=lambda spec, device: ["needs patience"],
        switches=(
            Switch(name="pdl", values=("on", "off", "stock"), toggles="the launch"),
            Switch(name="split", values=("1", "2"), toggles="KV", bitwise=True),
        ),
        numerics=Numerics(bfloat16=2e-2),
        skippable=(Region.MOE,),
        pdl_safe=("gate_up", "down"),
    )
"""


CHOOSY = """
    from layerscope.layers.spec import Family
    from layerscope.plugin import BackendSpec
    from layerscope.regions import Region

    def declines(spec):
        left = {Region.ATTENTION: "is tired"}
        if spec.rows > MOST:
            left[Region.MOE] = f"runs at most MOST rows, not {spec.rows}"
        return left

    BACKEND = BackendSpec(
        name="NAME",
        api_version=1,
        summary="a backend on paper",
        covers={Family.QWEN3_MOE: (Region.ATTENTION, Region.MOE)},
        build=print,
        declines=declines,
    )
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a backend that is refused, and one that is broken."""
    plugins.install(tmp_path, "catalog-fused", FUSED, version="1.2")
    plugins.install(tmp_path, "catalog-broken", "import no_such_module_here")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def table(report: Report, title: str) -> Table:
    """The table of that title."""
    (found,) = [each for each in report.tables if each.title == title]
    return found


def test_every_backend_is_listed_with_all_reasons(site: Path) -> None:
    """One that fits, one that refuses, and one that cannot be imported."""
    assert site.is_dir()
    found = {listing.name: listing for listing in listings(SPEC, CPU)}
    broken, fused = found["catalog-broken"], found["catalog-fused"]
    assert found["reference"].offered_by.startswith(OWN)
    assert (found["reference"].here, found["reference"].reasons) == ("fits", ())
    assert (fused.here, fused.offered_by) == ("refuses", "catalog-fused 1.2")
    assert fused.reasons == (
        "needs device cuda, not cpu",
        "runs at most 4 rows, not 6",
        "needs patience",
    )
    assert (broken.here, broken.backend) == ("broken", None)
    (reason,) = broken.reasons
    assert reason.startswith(
        "backend catalog-broken (catalog_broken:BACKEND of catalog-broken 1.0) cannot "
        "be imported: ModuleNotFoundError: No module named 'no_such_module_here'"
    )


@pytest.mark.parametrize(("most", "here"), [(6, "fits"), (4, "falls back")])
def test_regions_that_are_declined_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, here: str
) -> None:
    """With the reason of each, and whether any is left to run."""
    name = f"catalog-choosy-{most}"
    source = CHOOSY.replace("NAME", name).replace("MOST", str(most))
    plugins.install(tmp_path, name, source)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = [each for each in listings(SPEC, CPU) if each.name == name]
    assert (found.here, found.reasons) == (here, ())
    report = backends_report(SPEC, CPU)
    attention = (name, "attention", "is tired")
    moe = (name, "moe", "runs at most 4 rows, not 6")
    expected = (attention,) if most == SPEC.rows else (attention, moe)
    assert table(report, "declined here").rows == expected


def test_the_report_has_a_table_for_each_thing_that_is_offered(site: Path) -> None:
    """Coverage, switches, bounds and roles of all that can be imported."""
    assert site.is_dir()
    report = backends_report(SPEC, CPU)
    summaries = {row[0]: row[2:] for row in table(report, "backends").rows}
    assert summaries["catalog-broken"] == ("broken", None, None, None)
    assert summaries["catalog-fused"] == ("refuses", "no", "no", "a backend on paper")
    assert summaries["reference"][:3] == ("fits", "yes", "no")
    assert [row for row in table(report, "coverage").rows if row[0] != "reference"] == [
        ("catalog-fused", "qwen3_moe", "o_proj_all_reduce, moe", "moe")
    ]
    assert table(report, "switches").rows == (
        ("catalog-fused", "pdl", "on", "off, stock", "no", "the launch"),
        ("catalog-fused", "split", "1", "2", "yes", "KV"),
    )
    assert table(report, "bounds of numerics").rows == (
        ("catalog-fused", "0.02", "1e-05", None),
        ("reference", "0.01", "1e-05", "0.001"),
    )
    assert table(report, "kernels by role").rows == (
        ("catalog-fused", None, "gate_up, down"),
    )


def test_tables_without_rows_are_left_out() -> None:
    """The reference has no switches and no roles."""
    report = backends_report(SPEC, CPU)
    titles = {each.title for each in report.tables}
    assert {"backends", "coverage", "bounds of numerics"} <= titles
    assert all(each.rows for each in report.tables)


def test_the_report_says_against_which_layer_it_was_checked() -> None:
    """The reasons are of one layer on one device."""
    facts = {fact.label: fact.text for fact in backends_report(SPEC, CPU).facts}
    assert facts == {
        "device": "Paper CPU",
        "model": "paper-moe, layer 0 (qwen3_moe)",
        "step": "verify, 6 rows, context 16, tp 1",
        "types": "float32 activations, bfloat16 weights",
    }
