"""What the parts of a layer are made with: a launcher, memory, and choices."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Argument, Kernel, Launch, Launcher, Operation
from layerscope_standard.packing import packed_once
from layerscope_standard.selection import Selection


@dataclass(frozen=True, slots=True)
class Workshop:
    """Shared by all passes of one problem."""

    launcher: Launcher
    device: torch.device
    processors: int
    """Of the device."""

    selection: Selection
    turns: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Macros of code/turns.cuh by role, for backends that start kernels early."""

    stamped: list[Kernel] | None = None
    """Kernels whose blocks note when they work; None where they do not."""

    scratch: list[Tensor] = field(default_factory=list)
    """What kernels hand to each other; passes share it."""

    constants: list[Tensor] = field(default_factory=list)
    """What was made when the layer was built, and is only read since."""

    @property
    def device_bytes(self) -> int:
        """Of all memory that was made."""
        return sum(each.nbytes for each in (*self.scratch, *self.constants))

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """New memory for what one kernel hands to another."""
        made = torch.empty(*shape, dtype=dtype, device=self.device)
        self.scratch.append(made)
        return made

    def operand(self, weight: Tensor | BlockScaled) -> tuple[Tensor, Tensor | None]:
        """The values of `weight` as this package's kernels take them, and its scales.

        fp8 values are packed, once for all that is built with them; see `packing`. The
        memory counts where it was made.
        """
        values, scales = stored(weight)
        if scales is None:
            return values, None
        made, is_new = packed_once(values)
        if is_new:
            self.constants.append(made)
        return made, scales

    def stamping(self, *, is_wanted: bool) -> Self:
        """The same, whose kernels note when their blocks work, if that `is_wanted`."""
        return replace(self, stamped=[]) if is_wanted else self

    def read_stamps(self) -> dict[str, Tensor]:
        """When the blocks of stamped kernels worked; see `plugin.Stamping`.

        Raises:
            BackendError: two kernels that ran have one role.
        """
        found: dict[str, Tensor] = {}
        for kernel in dict.fromkeys(self.stamped or ()):
            if kernel.stamps is None:
                continue
            role, _ = kernel.stamps
            noted = self.launcher.read_stamps(kernel)
            if not noted.any():
                continue  # prepared, and another runs in its place
            if role in found:
                msg = f"standard: two kernels that ran are called {role}; report it"
                raise BackendError(msg)
            found[role] = noted
        return found

    def operation(
        self,
        role: str,
        kernel: Kernel,
        grid: tuple[int, int, int],
        args: tuple[Argument, ...],
        shared_bytes: int = 0,
    ) -> Operation:
        """One launch, prepared."""
        turns = self.turns.get(role, ())
        made = replace(kernel, defines=(*kernel.defines, *turns))
        if self.stamped is not None:
            made = replace(made, stamps=(role, prod(grid)))
            self.stamped.append(made)
        launch = Launch(made, grid, args, shared_bytes)
        return Operation(role, self.launcher.prepare(launch))


def stored(weight: Tensor | BlockScaled) -> tuple[Tensor, Tensor | None]:
    """The values of `weight` as stored, and its scales, if any."""
    if isinstance(weight, BlockScaled):
        return weight.data, weight.scale
    return weight, None


def plain(weight: Tensor | BlockScaled) -> Tensor:
    """A weight that is never block-scaled.

    Raises:
        TypeError: it is.
    """
    if isinstance(weight, BlockScaled):
        msg = "norms and routers are stored in the type of the activations"
        raise TypeError(msg)
    return weight


def suffix(weight: Tensor | BlockScaled) -> str:
    """How kernels for weights of this type end."""
    return "fp8" if isinstance(weight, BlockScaled) else "bf16"


def unit(weight: Tensor | BlockScaled) -> int:
    """Elements of k that a warp takes at a time."""
    return 64 if isinstance(weight, BlockScaled) else 32
