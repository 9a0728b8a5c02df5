"""What a backend says of itself, before anything is built."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from layerscope import registry
from layerscope.coverage import is_line, wrong_idle, wrong_reasons
from layerscope.environment import DeviceFacts
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import SIGNATURES, LayerSpec
from layerscope.plugin import API_VERSION, BackendSpec, Switch
from layerscope.testing.raising import calling
from layerscope.testing.watch import OperatorLog, first_operators

Spec = TypeVar("Spec")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_VALUE: Final = re.compile(r"[^,:=\s]+")
_ELSEWHERE: Final = DeviceFacts(type="none", name="no device", architecture="none")

_FRESH: Final = """
import json, sys
import torch
from layerscope import registry
name, *packages = sys.argv[1:]
before = set(sys.modules)
entry = registry.discover()[name]
is_listed_unread = entry.module not in sys.modules
registry.load(name)
loaded = [name for name in packages if name in sys.modules and name not in before]
print(json.dumps([is_listed_unread, loaded, torch.cuda.is_initialized()]))
"""


def declared(backend: BackendSpec) -> Iterator[str]:
    """What is wrong with the fields of `backend`, whose types are right."""
    if not _NAME.fullmatch(backend.name):
        yield f"the name {backend.name!r} cannot be written in --arms"
    if backend.api_version != API_VERSION:
        yield f"it speaks contract version {backend.api_version}, not {API_VERSION}"
    if not backend.summary:
        yield "its summary is empty"
    for what in ("bfloat16", "float32", "draft_logit"):
        bound = getattr(backend.numerics, what)
        if not 0 <= bound < 1:
            yield f"its bound numerics.{what} is {bound}, and must be in [0, 1)"
    yield from _coverage(backend)
    yield from _switches(backend.switches)


def _coverage(backend: BackendSpec) -> Iterator[str]:
    if not backend.covers:
        yield "it covers no family"
    for family, regions in backend.covers.items():
        known = [signature.region for signature in SIGNATURES[family]]
        foreign = [region for region in regions if region not in known]
        if foreign or not regions:
            names = ", ".join(foreign) or "nothing"
            yield f"it covers {names} of {family}, which has {', '.join(known)}"
    covered = {region for regions in backend.covers.values() for region in regions}
    strays = [region for region in backend.skippable if region not in covered]
    if strays:
        yield f"it calls regions skippable that it does not cover: {', '.join(strays)}"


def _switches(switches: Sequence[Switch]) -> Iterator[str]:
    names = [switch.name for switch in switches]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"two of its switches are called {name}"
    for switch in switches:
        yield from _switch(switch)


def _switch(switch: Switch) -> Iterator[str]:
    if len(set(switch.values)) < len(switch.values):
        yield f"switch {switch.name} has a value twice"
    for text in (switch.name, *switch.values):
        if not _VALUE.fullmatch(text):
            yield f"switch {switch.name}: {text!r} cannot be written in --arms"
    if not switch.toggles:
        yield f"switch {switch.name} does not say what it toggles"
    if switch.off_value not in switch.values:
        allowed = ", ".join(switch.values)
        yield f"switch {switch.name} is off at {switch.off}, and may be {allowed}"


def refusals(
    backend: BackendSpec, specs: Sequence[LayerSpec], device: DeviceFacts
) -> Iterator[str]:
    """What is wrong with how `backend` gives its reasons."""
    check = backend.check
    if check is None:
        return
    for spec in specs:
        for facts in (device, _ELSEWHERE):
            with calling("check"), OperatorLog() as log:
                found = check(spec, facts)
            if log.names:
                ran = ", ".join(first_operators(log.names))
                yield f"check ran {ran}: it must not compute anything"
            wrong = _wrong_reasons(found)
            if wrong:
                yield wrong
            if log.names or wrong:
                return


def left_undone(
    backend: BackendSpec, spec: LayerSpec, device: DeviceFacts
) -> Iterator[str]:
    """What is wrong with how `backend` tells what it does not do of a layer."""
    if not backend.refusals(spec, device):
        yield from declines(backend, spec)
        yield from idle(backend, spec, device)


def declines(backend: BackendSpec, spec: LayerSpec) -> Iterator[str]:
    """What is wrong with how `backend` leaves regions of `spec` to the fallback."""
    if backend.declines is None:
        return
    with calling("declines"), OperatorLog() as log:
        found: object = backend.declines(spec)
        again = backend.declines(spec)
    if log.names:
        ran = ", ".join(first_operators(log.names))
        yield f"declines ran {ran}: it must not compute anything"
    yield from wrong_reasons("declines", found, "regions")
    if not isinstance(found, Mapping):
        return
    if found != again:
        yield "declines answered the same layer twice with two things"
    for region in found:
        if region not in backend.covers[spec.model.family]:
            yield f"it declines {region}, which it does not cover"


def idle(
    backend: BackendSpec, spec: LayerSpec | DraftSpec, device: DeviceFacts
) -> Iterator[str]:
    """What is wrong with how `backend` tells which switches change nothing."""
    if isinstance(spec, DraftSpec):
        asked = backend.idle_in_draft, spec, device
        yield from _wrong_idle("idle_in_draft", asked, backend)
    else:
        yield from _wrong_idle("idle", (backend.idle, spec, device), backend)


def _wrong_idle(
    what: str,
    asked: tuple[Callable[[Spec, DeviceFacts], object] | None, Spec, DeviceFacts],
    backend: BackendSpec,
) -> Iterator[str]:
    tell, spec, device = asked
    if tell is None:
        return
    with calling(what), OperatorLog() as log:
        found, again = tell(spec, device), tell(spec, device)
    if log.names:
        ran = ", ".join(first_operators(log.names))
        yield f"{what} ran {ran}: it must not compute anything"
    yield from wrong_idle(what, found, backend)
    if found != again:
        yield f"{what} answered twice with two things"


def _wrong_reasons(found: object) -> str:
    if isinstance(found, str) or not isinstance(found, Sequence):
        return (
            f"check answered {found!r}: it must answer with a list of all reasons, "
            "empty where there are none"
        )
    for reason in found:
        if not is_line(reason):
            return f"check gave {reason!r} as a reason, which is not one line of text"
    return ""


def entry_point(backend: BackendSpec, *, is_named: bool) -> Iterator[str]:
    """What is wrong with the door that `backend` comes through, if it has one.

    Args:
        backend: as it was given, or found by its name.
        is_named: whether it was found by its name, and so must have a door.
    """
    entry = registry.discover().get(backend.name)
    if entry is None:
        return
    if not is_named and registry.load(backend.name) is not backend:
        yield f"the entry point {entry.name} = {entry.value} is another backend"
        return
    done = subprocess.run(  # noqa: S603 (this Python, on code of ours)
        [sys.executable, "-c", _FRESH, backend.name, *backend.requires.packages],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cause, *_ = [*reversed(done.stderr.splitlines()), "no output"]
        yield f"a fresh interpreter cannot import it: {cause}"
        return
    is_listed_unread, loaded, has_cuda = json.loads(done.stdout.splitlines()[-1])
    if not is_listed_unread:
        yield f"listing the backends imports {entry.module}"
    if loaded:
        yield (
            f"importing it imports {', '.join(loaded)}, which it requires: where that "
            "is missing it is broken, and cannot say so; import it in build"
        )
    if has_cuda:
        yield "importing it initialises CUDA; leave that to build"
