"""A report as one page: nothing is loaded, and what charts draw is in tables too.

Names come from whoever wrote kernels and arms. The template escapes all of them, and
data within ``script`` elements once more; the page itself forbids every request.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
from layerscope.render import charts, colours
from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.charts.look import painted
from layerscope.render.colours import Colour
from layerscope.render.grids import Grid, grid
from layerscope.render.plain import plain
from layerscope.render.topics import Topic, by_topic
from layerscope.report import Fact, Report, Table
from layerscope.report.build import report_of
from layerscope.report.evidence import capture_table, kernel_tables
from layerscope.report.measures import Measures, measures
from layerscope.run import Run
from layerscope.run_header import ReadCost, RunHeader

_FLAG: Final = re.compile(r"(--[a-z][a-z-]*)")
_LEAD: Final = ("device", "step", "types", "inputs", "steps")
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
    told_apart: str
    """What the names of its charts and tables end in, as another chapter has them too;
    empty in the first."""


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
        chapters.append(_chapter(run.draft, run.header.reads, is_part=True))
    return _template().render(
        run=run,
        chapters=chapters,
        colours=colours.named_colours(),
        shades={colour.light[1:]: colour for colour in colours.every_colour()},
        scripts=Markup(scripts.text()),  # noqa: S704 (escaped there)
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscope.render", "page"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["flags"] = _flags
    environment.globals["source"] = _source
    return environment.get_template("report.html.jinja")


def _shown(value: object) -> object:
    """What the template writes: texts are others', unless marked up by us."""
    return plain(value) if type(value) is str else value


def _flags(text: str) -> Markup:
    """`text`, in which flags of commands never break over lines."""
    mark = Markup("<code>{}</code>")
    parts = _FLAG.split(plain(text))  # flags are at odd places
    return Markup("").join(
        mark.format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def _source(name: str) -> Markup:
    """A file beside the template, as it is."""
    source = files("layerscope.render").joinpath("page", name)
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704 (our own)


def _chapter(
    run: Run, reads: Sequence[ReadCost] = (), *, is_part: bool = False
) -> Chapter:
    measured = measures(run, reads)
    report = report_of(run, measured, is_part=is_part)
    facts = {fact.label: fact.text for fact in report.facts}
    limits = {f"limit of {arm.name}" for arm in run.header.study.all_arms}
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
        regions=colours.colours_of(run.kernels["region"]),
        told_apart=f", {report.title}" if is_part else "",
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
    return Figure(
        title=title["text"],
        subtitles=tuple(title.get("subtitle", ())),
        spec=painted(spec, _by_page),
    )


def _by_page(light: str) -> str:
    """The name that the style sheet gives a colour, by its light shade."""
    return f"var(--c{light[1:]})"
