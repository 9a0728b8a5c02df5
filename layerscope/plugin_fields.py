"""Whether the fields of a loaded `BackendSpec` have the types that it declares.

A backend is foreign code: what is wrong in it must be a reason against it, not an
exception of whoever reads the field.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from layerscope.plugin import BackendSpec, Numerics, Requires, Switch, SwitchKind

_Test: TypeAlias = Callable[[object], bool]


def faults(backend: BackendSpec) -> list[str]:
    """Every field of `backend` that has another type than it must; empty where none."""
    found = list(_wrong(backend, _SPEC, ""))
    if isinstance(backend.requires, Requires):
        found += _wrong(backend.requires, _REQUIRES, "requires.")
    if isinstance(backend.numerics, Numerics):
        found += _wrong(backend.numerics, _NUMERICS, "numerics.")
    if _are_switches(backend.switches):
        for switch in backend.switches:
            found += _wrong(switch, _SWITCH, f"of switch {switch.name}: ")
    return found


def _wrong(
    owner: object, fields: Mapping[str, tuple[_Test, str]], where: str
) -> Iterator[str]:
    for name, (is_right, must) in fields.items():
        value = getattr(owner, name)
        if not is_right(value):
            shown, *_ = [*repr(value).splitlines(), ""]
            yield f"{where}{name} is {shown}, and must be {must}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_count(value)


def _is_collection(value: object) -> bool:
    """Whether it holds items; text and mappings would be read as something else."""
    return isinstance(value, Collection) and not isinstance(
        value, str | bytes | Mapping
    )


def _all(test: _Test) -> _Test:
    return lambda value: _is_collection(value) and all(map(test, _items(value)))


def _items(value: object) -> Collection[object]:
    return value if isinstance(value, Collection) else ()


def _or_none(test: _Test) -> _Test:
    return lambda value: value is None or test(value)


def _are_regions_by_family(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(family) and _are_texts(regions) for family, regions in value.items()
    )


_are_texts: Final = _all(_is_text)
_are_switches: Final = _all(lambda value: isinstance(value, Switch))

_TEXTS: Final = (_are_texts, "a tuple of names")
_SPEC: Final[Mapping[str, tuple[_Test, str]]] = {
    "name": (_is_text, "text"),
    "api_version": (_is_count, "an integer"),
    "summary": (_is_text, "text"),
    "covers": (_are_regions_by_family, "a mapping of families to tuples of regions"),
    "build": (callable, "a function"),
    "build_draft": (_or_none(callable), "a function or None"),
    "requires": (lambda value: isinstance(value, Requires), "a Requires"),
    "check": (_or_none(callable), "a function or None"),
    "declines": (_or_none(callable), "a function or None"),
    "idle": (_or_none(callable), "a function or None"),
    "idle_in_draft": (_or_none(callable), "a function or None"),
    "stamps": (lambda value: isinstance(value, bool), "True or False"),
    "switches": (_are_switches, "a tuple of Switch"),
    "numerics": (lambda value: isinstance(value, Numerics), "a Numerics"),
    "waits": _TEXTS,
    "skippable": _TEXTS,
    "pdl_safe": _TEXTS,
}
_REQUIRES: Final[Mapping[str, tuple[_Test, str]]] = {
    "device_types": _TEXTS,
    "architectures": _TEXTS,
    "dtypes": _TEXTS,
    "weight_dtypes": _TEXTS,
    "tp_sizes": (_all(_is_count), "a tuple of integers"),
    "step_kinds": _TEXTS,
    "max_rows": (_or_none(_is_count), "an integer or None"),
    "processors": (_is_count, "an integer"),
    "packages": _TEXTS,
}
_NUMERICS: Final[Mapping[str, tuple[_Test, str]]] = {
    "bfloat16": (_is_number, "a number"),
    "float32": (_is_number, "a number"),
    "draft_logit": (_is_number, "a number"),
}
_SWITCH: Final[Mapping[str, tuple[_Test, str]]] = {
    "name": (_is_text, "text"),
    "values": (
        lambda value: _are_texts(value) and bool(value),
        "a tuple of names, the default first",
    ),
    "toggles": (_is_text, "text"),
    "off": (_is_text, "text"),
    "kind": (
        lambda value: value in tuple(SwitchKind),
        f"one of {', '.join(SwitchKind)}",
    ),
    "starts_early": _TEXTS,
    "of": (
        lambda value: value in ("", "layer", "draft"),
        "layer, draft, or empty where it may change both",
    ),
}
