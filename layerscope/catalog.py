"""Every backend that is installed, what it offers, and whether it fits a layer here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Final

from layerscope import __version__, coverage, registry
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError
from layerscope.layers.draft_spec import draft_of
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import ENTRY_POINT_GROUP, BackendSpec
from layerscope.regions import Region
from layerscope.report import Cell, Column, Fact, Kind, Report, Table
from layerscope.study import Arm

_BACKENDS: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("offered_by", "offered by", Kind.TEXT),
    Column("here", "here", Kind.TEXT),
    Column("draft", "draft", Kind.TEXT),
    Column("stamps", "stamps", Kind.TEXT),
    Column("summary", "summary", Kind.TEXT),
)
_REASONS: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("reason", "reason", Kind.TEXT),
)
_DECLINED: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("region", "region", Kind.TEXT),
    Column("reason", "reason", Kind.TEXT),
)
_COVERAGE: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("family", "family", Kind.TEXT),
    Column("regions", "regions", Kind.TEXT),
    Column("skippable", "skippable", Kind.TEXT),
)
_SWITCHES: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("switch", "switch", Kind.TEXT),
    Column("default", "default", Kind.TEXT),
    Column("others", "others", Kind.TEXT),
    Column("bitwise", "bitwise", Kind.TEXT),
    Column("toggles", "toggles", Kind.TEXT),
)
_NUMERICS: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("bfloat16", "bfloat16", Kind.TEXT),
    Column("float32", "float32", Kind.TEXT),
    Column("draft_logit", "draft logit", Kind.TEXT),
)
_KERNELS: Final = (
    Column("backend", "backend", Kind.TEXT),
    Column("waits", "wait for others", Kind.TEXT),
    Column("pdl_safe", "PDL-safe", Kind.TEXT),
)


_ELSEWHERE: Final = (
    f"regions not covered, or declined, run on {registry.FALLBACK}, and each run says "
    "which"
)
_BOUNDS: Final = (
    "bounds: relative error of a layer's output by type of activations; how far the "
    "logit of a draft's token may be below the best one"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """One backend: what it says of itself, and every reason against a layer here."""

    name: str
    offered_by: str
    """The distribution and its version, such as ``layerscope 0.1.0``."""

    backend: BackendSpec | None
    """None where it cannot be loaded; the one reason is then why."""

    reasons: tuple[str, ...]
    """Each reads on from the name, but for why it cannot be loaded."""

    declined: Mapping[Region, str] = field(default_factory=dict)
    """Regions of the layer that it covers and leaves to the fallback, and why."""

    leaves_all: bool = False
    """Whether it would run no region of the layer itself."""

    @property
    def here(self) -> str:
        """What it can run of the layer here.

        ``fits``, ``falls back`` where that is nothing, ``refuses`` or ``broken``.
        """
        if self.backend is None:
            return "broken"
        if self.reasons:
            return "refuses"
        return "falls back" if self.leaves_all else "fits"


def listings(spec: LayerSpec, device: DeviceFacts) -> tuple[Listing, ...]:
    """Every installed backend by name, at its default switches; no GPU work.

    One that cannot be loaded is listed with the reason.

    Raises:
        BackendError: two distributions offer a backend of the same name.
    """
    return tuple(
        _listing(entry, spec, device) for entry in registry.discover().values()
    )


def _listing(entry: EntryPoint, spec: LayerSpec, device: DeviceFacts) -> Listing:
    if entry.dist is None:
        offered_by = f"layerscope {__version__}, not installed"
    else:
        offered_by = f"{entry.dist.name} {entry.dist.version}"
    try:
        backend = registry.load(entry.name)
    except BackendError as error:
        return Listing(entry.name, offered_by, None, (str(error),))
    arm = Arm(backend=entry.name)
    found = registry.reasons(backend, arm, spec, device, draft_of(spec))
    if found:
        return Listing(entry.name, offered_by, backend, tuple(found))
    declined = coverage.declined(backend, spec)
    leaves_all = bool(coverage.why_all_left(backend, spec))
    return Listing(entry.name, offered_by, backend, (), declined, leaves_all)


def backends_report(spec: LayerSpec, device: DeviceFacts) -> Report:
    """Tables of all backends, checked against `spec` on `device`.

    Raises:
        BackendError: two distributions offer a backend of the same name.
    """
    found = listings(spec, device)
    loaded = [each.backend for each in found if each.backend is not None]
    tables = (
        Table("backends", _BACKENDS, tuple(map(_summary, found))),
        Table("why not here", _REASONS, tuple(_reasons(found))),
        Table("declined here", _DECLINED, tuple(_declined(found))),
        Table("coverage", _COVERAGE, tuple(_coverage(loaded))),
        Table("switches", _SWITCHES, tuple(_switches(loaded))),
        Table("bounds of numerics", _NUMERICS, tuple(map(_numerics, loaded))),
        Table("kernels by role", _KERNELS, tuple(_kernels(loaded))),
    )
    return Report(
        title=f"backends, from the entry points {ENTRY_POINT_GROUP}",
        facts=tuple(_facts(spec, device)),
        tables=tuple(table for table in tables if table.rows),
        notes=(
            _ELSEWHERE,
            _BOUNDS,
        ),
    )


def _facts(spec: LayerSpec, device: DeviceFacts) -> Iterator[Fact]:
    yield Fact("device", ", ".join(filter(None, (device.name, device.architecture))))
    yield Fact("model", f"{spec.model.name}, layer {spec.layer} ({spec.model.family})")
    shard = " shard-shaped" if spec.shard_shaped else ""
    yield Fact(
        "step",
        f"{spec.kind}, {spec.rows} rows, context {spec.context}, tp {spec.tp}{shard}",
    )
    yield Fact("types", f"{spec.dtype} activations, {spec.weight_dtype} weights")


def _summary(listing: Listing) -> tuple[Cell, ...]:
    backend = listing.backend
    known = (listing.name, listing.offered_by, listing.here)
    if backend is None:
        return (*known, None, None, None)
    draft = _yes(is_true=backend.build_draft is not None)
    return (*known, draft, _yes(is_true=backend.stamps), backend.summary)


def _reasons(found: Sequence[Listing]) -> Iterator[tuple[Cell, ...]]:
    for listing in found:
        for reason in listing.reasons:
            yield listing.name, reason


def _declined(found: Sequence[Listing]) -> Iterator[tuple[Cell, ...]]:
    for listing in found:
        for region, why in listing.declined.items():
            yield listing.name, region, why


def _coverage(loaded: Sequence[BackendSpec]) -> Iterator[tuple[Cell, ...]]:
    for backend in loaded:
        for family, regions in backend.covers.items():
            skippable = [region for region in regions if region in backend.skippable]
            yield backend.name, family, ", ".join(regions), ", ".join(skippable) or None


def _switches(loaded: Sequence[BackendSpec]) -> Iterator[tuple[Cell, ...]]:
    for backend in loaded:
        for switch in backend.switches:
            default, *others = switch.values
            bitwise = _yes(is_true=switch.bitwise)
            row = (default, ", ".join(others), bitwise, switch.toggles)
            yield backend.name, switch.name, *row


def _numerics(backend: BackendSpec) -> tuple[Cell, ...]:
    bounds = backend.numerics
    logit = bounds.draft_logit if backend.build_draft else None
    return backend.name, *map(_bound, (bounds.bfloat16, bounds.float32, logit))


def _bound(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


def _kernels(loaded: Sequence[BackendSpec]) -> Iterator[tuple[Cell, ...]]:
    for backend in loaded:
        if backend.waits or backend.pdl_safe:
            roles = (backend.waits, backend.pdl_safe)
            yield backend.name, *(", ".join(names) or None for names in roles)


def _yes(*, is_true: bool) -> str:
    return "yes" if is_true else "no"
