"""Foreign arms and their regions, from what users give."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from torch import nn

from layerscope.errors import InputError
from layerscope.regions import is_region_name
from layerscope.runner.foreign.module_regions import modules_of, named_parts, root_of
from layerscope.runner.foreign.workload import ForeignArm
from layerscope.study import AA_SUFFIX

Function: TypeAlias = Callable[..., Any]

Functions: TypeAlias = Function | Sequence[Function] | nn.ModuleList
"""An arm: a callable, or several that take turns."""

_MOST_NAMES: Final = 20
"""Names that a message lists."""

Patterns: TypeAlias = dict[str, list[str]]
"""Shell patterns of module names, by region."""


def patterns_of(regions: object) -> Patterns:
    """The patterns in `regions`, which should be a mapping of names to some.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(regions, Mapping):
        kind = type(regions).__name__
        msg = f"regions is of type {kind}; give patterns of module names by region"
        raise InputError(msg)
    patterns = {
        name: [found] if isinstance(found, str) else list(found)
        for name, found in regions.items()
        if isinstance(found, Sequence)
    }
    for name in regions:
        found = patterns.get(name, [])
        if not (isinstance(name, str) and is_region_name(name)):
            msg = f"regions: {name!r} is no name: a letter, then letters, digits and _"
            raise InputError(msg)
        if not (found and all(isinstance(pattern, str) for pattern in found)):
            msg = f"regions: {name} must be a pattern of module names, or several"
            raise InputError(msg)
    return patterns


def arms_of(arms: object, patterns: Patterns) -> dict[str, ForeignArm]:
    """The arms in `arms`, which should be a mapping of names to callables.

    Raises:
        InputError: it is something else, or a pattern matches no module of any arm.
    """
    if not (isinstance(arms, Mapping) and arms):
        kind = (
            "empty" if isinstance(arms, Mapping) else f"of type {type(arms).__name__}"
        )
        msg = f"arms is {kind}; give callables by name, the first to compare with"
        raise InputError(msg)
    made = {}
    for name, given in arms.items():
        _check_name(name)
        several = isinstance(given, Sequence | nn.ModuleList)
        functions = tuple(given) if several else (given,)
        if not (functions and all(callable(one) for one in functions)):
            msg = (
                f"arm {name} is of type {type(given).__name__}; give a callable, or a "
                "sequence of callables"
            )
            raise InputError(msg)
        roots = [root_of(one) for one in functions]
        modules = [{} if r is None else modules_of(r, patterns) for r in roots]
        made[name] = ForeignArm(name, functions, tuple(roots), tuple(modules))
    _refuse_unmatched(made, patterns)
    return made


def _check_name(name: object) -> None:
    is_name = isinstance(name, str) and name.strip() == name and name.isprintable()
    if not (name and is_name and not str(name).endswith(AA_SUFFIX)):
        msg = f"{name!r} is no name of an arm: it must be one line of text"
        raise InputError(msg)


def _refuse_unmatched(arms: dict[str, ForeignArm], patterns: Patterns) -> None:
    for name, wanted in patterns.items():
        if any(found.get(name) for arm in arms.values() for found in arm.modules):
            continue
        roots = [
            root for arm in arms.values() for root in arm.roots if root is not None
        ]
        if not roots:
            msg = (
                "regions by module names need an arm that is a module or its method; "
                "mark regions with layerscope.region instead"
            )
            raise InputError(msg)
        there = _there_is([path for path, _ in named_parts(roots[0]) if path])
        msg = f"region {name}: no module matches {', '.join(wanted)}; {there}"
        raise InputError(msg)


def _there_is(names: list[str]) -> str:
    if not names:
        return "there is none that can be marked"
    more = len(names) - _MOST_NAMES
    listed = ", ".join(names[:_MOST_NAMES])
    return f"there are {listed}{f' and {more} more' if more > 0 else ''}"
