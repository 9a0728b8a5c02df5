"""From a function of tensors to one compiled graph, or to an error of one line."""

from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from layerscope.errors import BackendError

Arguments = TypeVar("Arguments")

OPTIONS: Final[dict[str, str | int | bool | Callable[..., Any]]] = {
    # Layerscope captures graphs itself.
    "triton.cudagraphs": False,
    # Makes kernels of a CPU visible to the profiler, so that they can be counted.
    "cpp.enable_kernel_profile": True,
    # Ids and page tables are in range; a check of each would be work in every kernel.
    "assert_indirect_indexing": False,
}
"""What the compiler is told, beside its defaults, for these functions alone."""

ALIGNMENT_BYTES: Final = 16


def compiled(
    what: str, function: Callable[[Arguments], None], calls: Sequence[Arguments]
) -> Callable[[Arguments], None]:
    """`function`, compiled as one graph for all `calls`, and run once on each.

    Nothing is left to compile at capture: the calls have the same shapes, and one that
    would need a graph of its own is refused.

    Args:
        what: names the function in errors, such as ``moe``.
        function: of one tuple of tensors, nested or not; writes into some of them.
        calls: the arguments of every pass.

    Raises:
        BackendError: it cannot be compiled, or not as one graph, or not once for all.
    """
    from torch._dynamo import config
    from torch._dynamo.exc import (
        FailOnRecompileLimitHit,
        RecompileError,
        TorchDynamoException,
        Unsupported,
    )

    run: Callable[[Arguments], None] = torch.compile(
        _with_own_code(what, function), fullgraph=True, dynamic=False, options=OPTIONS
    )
    try:
        with config.patch(error_on_recompile=True), torch.no_grad():
            for arguments in sorted(calls, key=_is_aligned):
                run(arguments)
    except Unsupported as error:
        msg = f"torch_compile: {what} is not one graph: {_cause(error)}; {_ADVICE}"
        raise BackendError(msg) from error
    except (RecompileError, FailOnRecompileLimitHit) as error:
        msg = f"torch_compile: {what} is not one graph for all passes; {_ADVICE}"
        raise BackendError(msg) from error
    except TorchDynamoException as error:
        cause = _cause(error)
        msg = f"torch_compile: {what} could not be compiled: {cause}; {_ADVICE}"
        raise BackendError(msg) from error
    return run


_ADVICE: Final = "report it, and measure without this arm by naming others in --arms"


def _with_own_code(name: str, function: Callable[[Arguments], None]) -> FunctionType:
    """`function` under a code object of its own.

    Compiled graphs are kept by code object, and few are allowed: without this, all
    layers that are built in a process would share that number.
    """
    if not isinstance(function, FunctionType):
        msg = f"{name} is no plain function: {function!r}"
        raise TypeError(msg)
    code = function.__code__.replace(co_name=name)
    closure = function.__closure__
    return FunctionType(code, function.__globals__, name, None, closure)


def _is_aligned(arguments: object) -> bool:
    """Whether vector loads can read all tensors of `arguments`.

    A graph that was made for aligned tensors copies those that are not before it
    starts, so the ones that are not come first.
    """
    return all(
        tensor.data_ptr() % ALIGNMENT_BYTES == 0 for tensor in tensors_of(arguments)
    )


def tensors_of(arguments: object) -> Iterator[Tensor]:
    """All tensors of nested tuples."""
    return (leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor))


def _cause(error: Exception) -> str:
    """The line that says why, without its last full stop."""
    first, *others = filter(None, map(str.strip, str(error).splitlines()))
    # "backend='inductor' raised:" is followed by what it raised.
    line = others[0] if others and first.endswith("raised:") else first
    return line.rstrip(".")
