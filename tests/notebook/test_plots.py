from pathlib import Path

import pytest

from layerscope import InputError, Run
from layerscope.render import charts, colours
from tests import edited, handmade
from tests.ingest import paper_runs

NAMES = ("timeline", "ledger", "shares", "samples", "knockouts", "limits")


@pytest.fixture(scope="module")
def run() -> Run:
    """The hand-made run in which everything was measured."""
    return Run.of(edited.run())


@pytest.mark.parametrize("name", NAMES)
def test_every_chart_is_saved_as_a_picture(run: Run, name: str, tmp_path: Path) -> None:
    """PNG and SVG without a browser, light and dark."""
    draw = getattr(run.plot, name)
    draw().save(tmp_path / "light.png")
    assert (tmp_path / "light.png").read_bytes().startswith(b"\x89PNG\r\n")
    for is_dark, page in ((False, colours.PAGE.light), (True, colours.PAGE.dark)):
        draw(dark=is_dark).save(tmp_path / "chart.svg")
        svg = (tmp_path / "chart.svg").read_text(encoding="utf-8")
        assert f'fill="{page}"' in svg


@pytest.mark.parametrize("name", NAMES)
def test_charts_have_a_width_of_their_own(run: Run, name: str) -> None:
    """Notebooks do not tell how wide they are."""
    assert getattr(run.plot, name)().to_dict()["width"] == 760


def test_plots_are_the_charts_of_pages(run: Run) -> None:
    """A notebook and a page draw the same, but for the width."""
    of_page = charts.shares(run)
    assert of_page is not None
    assert run.plot.shares().to_dict() == of_page.to_dict() | {"width": 760}


def test_a_ledger_is_of_the_first_two_arms_or_of_those_named(run: Run) -> None:
    """Either way says from where to where."""
    assert run.plot.ledger().to_dict()["title"]["text"] == "from reference to fused"
    back = run.plot.ledger("fused", "reference")
    assert back.to_dict()["title"]["text"] == "from fused to reference"


def test_a_ledger_of_one_named_arm_is_against_another(run: Run) -> None:
    """The one not named is the first, or the second, whichever is left."""

    def told(base: str | None, other: str | None) -> str:
        title: str = run.plot.ledger(base, other).to_dict()["title"]["text"]
        return title

    assert told("fused", None) == "from fused to reference"
    assert told(None, "reference") == "from fused to reference"
    assert told(None, "fused") == "from reference to fused"


def test_an_arm_against_itself_is_refused(run: Run) -> None:
    """As `Run.compare` does, in one line that names the A/A arm."""
    with pytest.raises(InputError, match=r"reference is named twice; .*\(A/A\)"):
        run.plot.ledger("reference", "reference")


def test_one_arm_needs_no_list(run: Run) -> None:
    """A name alone is that arm, not its letters."""
    alone = run.plot.timeline("fused").to_dict()
    assert alone == run.plot.timeline(["fused"]).to_dict()
    with pytest.raises(InputError, match="has no arm 'fusd'"):
        run.plot.timeline("fusd")


def test_what_was_not_measured_is_said() -> None:
    """A run without experiments has no knock-outs and no bounds to draw."""
    bare = Run.of(handmade.run())
    with pytest.raises(InputError, match="no region was taken out of a graph"):
        bare.plot.knockouts()
    with pytest.raises(InputError, match="paper-run has nothing to draw: no bound was"):
        bare.plot.limits()


def test_a_trace_has_charts_of_what_was_observed(tmp_path: Path) -> None:
    """Timeline, shares and ledger, without any interval; the others have nothing."""
    traced = Run.of(paper_runs.run())
    for name in ("timeline", "shares", "ledger"):
        getattr(traced.plot, name)().save(tmp_path / "chart.png")
    ledger = traced.plot.ledger().to_dict()
    assert ledger["title"]["subtitle"][0].startswith("observed: no interval is known")
    shares = traced.plot.shares().to_dict()
    assert shares["title"]["subtitle"][0].endswith("nothing ran unprofiled")
    for name in ("samples", "knockouts", "limits"):
        with pytest.raises(InputError, match="has nothing to draw"):
            getattr(traced.plot, name)()


def test_one_arm_alone_has_no_ledger() -> None:
    """There is nothing to compare it with."""
    traced = Run.of(paper_runs.decode_only())
    with pytest.raises(InputError, match="has one arm, decode; a ledger is of two"):
        traced.plot.ledger()
