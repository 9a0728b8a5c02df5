"""Rules that say what a kernel does and to which region it belongs: a readable table.

The table that is shipped lies beside this module, ``kernel_rules.toml``, which says
what its sections mean. A user's own table has the same sections; all that it says comes
before what is shipped, and a rule of a shipped one's name takes that one's place.
"""

import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import polars as pl

from layerscope.analyze.kernel_cuts import Cut, parse_cut
from layerscope.errors import InputError, describe
from layerscope.regions import Region, is_region_name
from layerscope.schema import UNASSIGNED

SHIPPED: Final = "kernel_rules.toml"
MOST_JOINED: Final = 100
"""More kernels than that are part of no other."""

NAMED: Final = "named"
"""As the region of a range rule: the word after the last colon of the range's name."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str  # unique in its section


class KernelRule(_Entry, frozen=True, kw_only=True):
    """What the name of a kernel says."""

    pattern: str  # regular expression without look-around, found anywhere in the name
    role: str  # what the kernel does; several joined by +
    region: str | None = None  # None: the name alone does not tell
    library: str = ""  # which projects' kernels have such names
    apart: bool = False  # says nothing of the kernels beside it


class Join(_Entry, frozen=True, kw_only=True):
    """Which kernels are part of the one beside them."""

    roles: tuple[str, ...]
    to: Literal["previous", "next"]
    of: str  # role of the kernel whose part they are
    times: int = 1  # so many in a row at most
    as_: str = msgspec.field(name="as", default="")  # the role that all of them get


class SequenceRule(_Entry, frozen=True, kw_only=True):
    """The region of kernels that lie between two whose regions are known."""

    after: tuple[str, ...]  # regions or roles of the known kernel before, or "start"
    before: tuple[str, ...]  # of the known kernel after, or "end" or "layer_end"
    region: str  # or "before" or "after": that of the known kernel
    from_: str = msgspec.field(name="from", default="")  # first place that is in
    past: str = ""  # last place that is not
    to: str = ""  # last place that is in
    until: str = ""  # first place that is not
    needs: tuple[str, ...] = ()  # places that must be there
    without: tuple[str, ...] = ()  # places that must not
    kernels: tuple[str, ...] = ()  # only of these roles; all where empty
    collectives: bool = False  # also those that are no all-reduces
    rename: dict[str, str] = {}  # role by the name -> role that the sequence tells

    @property
    def places(self) -> tuple[str, ...]:
        """Every place that it names, as text."""
        bounds = (self.from_, self.past, self.to, self.until)
        return (*(text for text in bounds if text), *self.needs, *self.without)

    def cuts(self) -> Iterator[Cut]:
        """Every place that it names."""
        for text in self.places:
            cut = parse_cut(text)
            if cut is not None:  # as checked when it was loaded
                yield cut


class RangeRule(_Entry, frozen=True, kw_only=True):
    """What the name of a host range or a module says of the kernels launched in it."""

    pattern: str
    region: str  # or "named"
    coarse: bool = False  # also holds other regions: counts where nothing else tells


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of rules; of several that apply, the first counts."""

    rule: tuple[KernelRule, ...] = ()
    join: tuple[Join, ...] = ()
    sequence: tuple[SequenceRule, ...] = ()
    range: tuple[RangeRule, ...] = ()

    @property
    def apart(self) -> list[str]:
        """What assigned kernels that say nothing of those beside them."""
        return [f"rule {rule.name}" for rule in self.rule if rule.apart]


_Anything: TypeAlias = KernelRule | Join | SequenceRule | RangeRule
_E = TypeVar("_E", bound=_Entry)
_SECTIONS: Final = tuple(field.name for field in msgspec.structs.fields(Rules))


def load_rules(user: Path | None = None) -> Rules:
    """The rules that are shipped, after those of the file `user`, where one is given.

    Raises:
        InputError: `user` cannot be read or holds what is no rule; says which file,
            rule and field.
    """
    text = files("layerscope.analyze").joinpath(SHIPPED).read_text(encoding="utf-8")
    shipped = _parsed(text, SHIPPED)
    if user is None:
        return shipped
    try:
        own = _parsed(user.read_text(encoding="utf-8"), str(user))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{user} cannot be read ({describe(error)}): name a file of kernel rules"
        raise InputError(msg) from error
    return Rules(
        rule=_first(own.rule, shipped.rule),
        join=_first(own.join, shipped.join),
        sequence=_first(own.sequence, shipped.sequence),
        range=_first(own.range, shipped.range),
    )


def _first(own: Sequence[_E], shipped: Sequence[_E]) -> tuple[_E, ...]:
    replaced = {entry.name for entry in own}
    return (*own, *(entry for entry in shipped if entry.name not in replaced))


def _parsed(text: str, file: str) -> Rules:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{file} is no TOML ({error}): see docs/kernel-rules.md"
        raise InputError(msg) from error
    try:
        rules = msgspec.convert(table, Rules)
    except msgspec.ValidationError as error:
        msg = f"{file}: {_located(error, table)}: see docs/kernel-rules.md"
        raise InputError(msg) from error
    for section in _SECTIONS:
        _check_names(getattr(rules, section), file, section)
        for entry in getattr(rules, section):
            for field, reason in _faults(entry):
                msg = f"{file}: {section} {entry.name!r}, {field}: {reason}"
                raise InputError(msg)
    return rules


def _located(error: msgspec.ValidationError, table: dict[str, Any]) -> str:
    """The message, with the name of the rule in place of its number where it has one.

    msgspec ends its messages with the path, such as ``$.rule[3].pattern``.
    """
    reason, _, path = str(error).partition(" - at `$.")
    section, _, rest = path.rstrip("`").partition("[")
    number, _, field = rest.partition("]")
    entries = table.get(section)
    if not (isinstance(entries, list) and number.isdigit()):
        return reason
    entry = entries[int(number)]
    name = entry.get("name") if isinstance(entry, dict) else None
    label = repr(name) if isinstance(name, str) else f"number {int(number) + 1}"
    return f"{section} {label}{field.replace('.', ', ', 1)}: {reason}"


def _check_names(entries: Sequence[_Anything], file: str, section: str) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            msg = f"{file}: {section} {entry.name!r} is there twice: rename one"
            raise InputError(msg)
        seen.add(entry.name)


def _faults(entry: _Anything) -> Iterator[tuple[str, str]]:
    """Which fields of an entry cannot be used, and why."""
    if not entry.name or not entry.name.isprintable():
        yield "name", "it is empty or no plain text: give it a short name"
    match entry:
        case KernelRule():
            yield from _pattern_faults(entry.pattern)
            yield from _name_faults("role", *entry.role.split("+"))
            yield from _name_faults("region", entry.region or Region.OTHER)
        case RangeRule():
            yield from _pattern_faults(entry.pattern)
            yield from _name_faults("region", entry.region)
        case Join():
            yield from _name_faults("roles", *entry.roles)
            yield from _name_faults("of", entry.of)
            if not 1 <= entry.times <= MOST_JOINED:
                yield "times", f"it is no number from 1 to {MOST_JOINED}"
        case SequenceRule():
            yield from _name_faults("region", entry.region)
            yield from _name_faults("rename", *entry.rename.values())
            yield from _place_faults(entry)


def _pattern_faults(pattern: str) -> Iterator[tuple[str, str]]:
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        told = [line for line in lines if line.startswith(("error:", "regex error:"))]
        reason = told[-1].removeprefix("regex ").removeprefix("error: ").rstrip(".")
        yield "pattern", f"{reason}: write it as Rust's regular expressions are"


def _name_faults(field: str, *names: str) -> Iterator[tuple[str, str]]:
    for name in names:
        if not is_region_name(name) or name == UNASSIGNED:
            yield field, f"{name!r} is no name: a letter, then letters, digits and _"


def _place_faults(entry: SequenceRule) -> Iterator[tuple[str, str]]:
    for field in ("from_", "past", "to", "until", "needs", "without"):
        value = getattr(entry, field)
        for text in (value,) if isinstance(value, str) and value else value:
            if parse_cut(text) is None:
                reason = f"{text!r} is no place, as 'last gemm before first norm' is"
                yield field.rstrip("_"), reason
