"""Regions from module names: hooks that mark what submodules run, while observed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import partial

from torch import nn
from torch.utils.hooks import RemovableHandle

from layerscope.errors import InputError
from layerscope.regions import region


def root_of(function: Callable[..., object]) -> nn.Module | None:
    """The module whose submodules `function` runs, if it can be told.

    That is a module itself, or the module of a bound method, also behind
    `functools.partial`.
    """
    if isinstance(function, partial):
        return root_of(function.func)
    owner = getattr(function, "__self__", function)
    return owner if isinstance(owner, nn.Module) else None


def named_parts(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that hooks can mark, by names relative to `root`, which is ``""``.

    What torch compiled is one whole, marked from outside: hooks within it would be
    compiled too. A module compiled in place has no outside.
    """
    compiled: list[str] = []
    for path, module in root.named_modules(remove_duplicate=False):
        if any(path.startswith(prefix) for prefix in compiled):
            continue
        in_place = module._compiled_call_impl is not None  # noqa: SLF001
        if in_place or hasattr(module, "_orig_mod"):
            compiled.append(f"{path}." if path else "")
        if not in_place:
            yield path, module


def modules_of(
    root: nn.Module, patterns: Mapping[str, Sequence[str]]
) -> dict[str, list[nn.Module]]:
    """The submodules of `root` whose qualified names match, by region.

    Args:
        root: names are relative to it, such as ``layers.0.self_attn``.
        patterns: shell patterns (``*`` also matches dots), by region.

    Raises:
        InputError: a module belongs to two regions.
    """
    found: dict[str, dict[nn.Module, str]] = {name: {} for name in patterns}
    for path, module in named_parts(root):
        for name, wanted in patterns.items():
            if any(fnmatchcase(path, pattern) for pattern in wanted):
                found[name][module] = path
    for name, modules in found.items():
        for other, others in found.items():
            shared = [path for module, path in modules.items() if module in others]
            if shared and other != name:
                path = shared[0] or "itself"
                msg = f"regions: module {path} belongs to {name} and {other}; keep one"
                raise InputError(msg)
    return {name: list(modules) for name, modules in found.items()}


@contextmanager
def marking(modules: Mapping[str, Sequence[nn.Module]]) -> Iterator[None]:
    """Mark what `modules` run in the block as their regions; innermost ones count."""
    with ExitStack() as hooks:
        for name, found in modules.items():
            for module in found:
                for handle in _mark(module, name):
                    hooks.callback(handle.remove)
        yield


def _mark(module: nn.Module, name: str) -> Iterator[RemovableHandle]:
    opened: list[ExitStack] = []

    def before(*_: object) -> None:
        scope = ExitStack()
        scope.enter_context(region(name))
        opened.append(scope)

    def after(*_: object) -> None:
        opened.pop().close()

    # First before and last after: other hooks of the module belong to it.
    yield module.register_forward_pre_hook(before, prepend=True)
    yield module.register_forward_hook(after, always_call=True)
