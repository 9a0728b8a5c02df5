"""A report as one page: nothing is loaded, and what charts draw is in tables too.

Names come from whoever wrote kernels and arms. The template escapes all of them, and
data within ``script`` elements once more; the page itself forbids every request.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import altair as alt
import jinja2
import polars as pl
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from layerscope.analyze.median_pass import median_passes_of, pictured_kernels
from layerscope.experiment import CAPTURED
from layerscope.regions import in_order
from layerscope.render import charts, colours
from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.colours import Colour
from layerscope.render.grids import Grid, grid
from layerscope.render.topics import Topic, by_topic
from layerscope.report import Fact, Report, Table
from layerscope.report.build import report_of
from layerscope.report.evidence import capture_table, kernel_tables
from layerscope.report.measures import Measures, measures
from layerscope.run import Run
from layerscope.run_header import RunHeader

_COLOUR: Final = re.compile(r"#[0-9a-f]{6}")
_AUTOSIZE: Final = {"type": "fit-x", "contains": "padding"}
"""A chart is as wide as the page, and as high as its rows need."""

_FLAG: Final = re.compile(r"(--[a-z][a-z-]*)")
_LEAD: Final = ("device", "step", "types", "inputs")
"""Facts that say in one line what was measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, its caption, and the specification that draws it."""

    title: str
    subtitles: tuple[str, ...]
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """What is shown of one topic."""

    topic: Topic
    figures: tuple[Figure, ...]
    tables: tuple[Grid, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """A finding in parts: the figure, how well it is known, and its reasons."""

    label: str
    figure: str
    detail: str
    reasons: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """What is shown of one run: that of a layer, or that of its draft."""

    report: Report
    lead: tuple[str, ...]
    headlines: tuple[Headline, ...]
    verdicts: tuple[Headline, ...]
    sections: tuple[Section, ...]
    regions: Mapping[str, Colour]


def render(run: Run, scripts: ChartScripts) -> str:
    """The page of `run` and of its draft, whole.

    Args:
        run: what is shown.
        scripts: those that draw its charts.

    Raises:
        MeasurementError: the scripts cannot be had.
    """
    chapters = [_chapter(run)]
    if run.draft is not None:
        chapters.append(_chapter(run.draft, is_part=True))
    return _template().render(
        run=run,
        chapters=chapters,
        colours=_named_colours(),
        shades=_shades(),
        scripts=Markup(scripts.text()),  # noqa: S704 (escaped there)
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscope.render", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["flags"] = _flags
    environment.globals["source"] = _source
    return environment.get_template("report.html.jinja")


def _flags(text: str) -> Markup:
    """`text`, in which flags of commands never break over lines."""
    mark = Markup("<code>{}</code>")
    parts = _FLAG.split(text)  # flags are at odd places
    return Markup("").join(
        mark.format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def _source(name: str) -> Markup:
    """A file beside the template, as it is."""
    source = files("layerscope.render").joinpath("page", name)
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704 (our own)


def _chapter(run: Run, *, is_part: bool = False) -> Chapter:
    measured = measures(run)
    report = report_of(run, measured, is_part=is_part)
    facts = {fact.label: fact.text for fact in report.facts}
    limits = {f"limit of {arm.name}" for arm in run.header.study.all_arms}
    regions = in_order(run.kernels["region"].unique())
    foreign = [name for name in regions if name not in colours.REGION_COLOURS]
    return Chapter(
        report=report,
        lead=tuple(facts[label] for label in _LEAD if label in facts),
        headlines=tuple(
            _headline(fact) for fact in report.headlines if fact.label not in limits
        ),
        verdicts=tuple(
            _headline(fact) for fact in report.headlines if fact.label in limits
        ),
        sections=tuple(_sections(run, measured, report)),
        regions={
            name: colours.colour_of(name, foreign.index(name) if name in foreign else 0)
            for name in regions
        },
    )


def _headline(fact: Fact) -> Headline:
    """The parts of a headline, which stand in one line elsewhere."""
    change, _, reasons = fact.text.partition(": ")
    figure, opened, detail = change.partition(" (")
    return Headline(
        label=fact.label,
        figure=figure,
        detail=detail.replace(")", "", 1) if opened else "",
        reasons=reasons,
    )


def _sections(run: Run, measured: Measures, report: Report) -> Iterator[Section]:
    medians = median_passes_of(measured.shares).filter(pl.col("experiment") == CAPTURED)
    pictured = pictured_kernels(run.kernels, medians=medians)
    with debug_mode(False):  # noqa: FBT003 (checks every part of every chart)
        drawn = _figures(run.header, measured, pictured)
    tables: tuple[Table, ...] = (
        *report.tables,
        *kernel_tables(run.header, pictured),
        *capture_table(run.header, measured.times),
    )
    for topic, found in by_topic(tables).items():
        figures = tuple(drawn.get(topic, ()))
        if figures or found:
            yield Section(topic, figures, tuple(map(grid, found)))


def _figures(
    header: RunHeader, measured: Measures, pictured: pl.DataFrame
) -> dict[Topic, list[Figure]]:
    arms = [arm.name for arm in header.study.arms]
    anchors = measured.anchors
    pictures: dict[Topic, list[alt.LayerChart | None]] = {
        Topic.LEDGER: [charts.ledger(found) for found in measured.ledgers.values()],
        Topic.TIMELINE: [charts.pictured_timeline(pictured, arms)],
        Topic.SHARES: [charts.shares_of(measured.captured_regions, anchors)],
        Topic.SAMPLES: [charts.samples_of(measured.times, anchors)],
        Topic.EXPERIMENTS: [charts.knockouts_of(measured.knocked, measured.regions)],
        Topic.LIMITS: [charts.limits_of(header.bounds, anchors)],
    }
    return {
        topic: [_figure(chart) for chart in found if chart is not None]
        for topic, found in pictures.items()
    }


def _figure(chart: alt.LayerChart) -> Figure:
    """A chart whose title the page tells, in colours that follow the page."""
    spec = chart.to_dict(validate=False)  # which would take most of the time
    title = spec.pop("title")
    spec.setdefault("autosize", _AUTOSIZE)
    return Figure(
        title=title["text"],
        subtitles=tuple(title.get("subtitle", ())),
        spec={
            key: value if key in ("data", "datasets") else _by_page(value)
            for key, value in spec.items()
        },
    )


def _by_page(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """A specification with the names of the page's colours in place of light shades.

    Data stays as it is.
    """
    if isinstance(value, dict):
        return {
            key: each if key == "data" else _by_page(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return list(map(_by_page, value))
    if isinstance(value, str) and _COLOUR.fullmatch(value):
        return f"var(--c{value[1:]})"
    return value


def _named_colours() -> dict[str, Colour]:
    """The colours that the style sheet names."""
    return {
        name.lower(): value
        for name, value in vars(colours).items()
        if isinstance(value, Colour) and not name.startswith("_")
    }


def _shades() -> dict[str, Colour]:
    """Every colour that a chart may have, by its light shade without the mark."""
    every = (*_named_colours().values(), *colours.REGION_COLOURS.values())
    return {colour.light[1:]: colour for colour in every}
