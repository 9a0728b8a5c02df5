"""What a call of a foreign callable has done, and how far that is from another's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import inf, isfinite, nan
from typing import Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from layerscope.errors import BackendError

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as an element: NaN is not equal to itself, its bits are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What calls on the same arguments returned, and left in those arguments."""

    returned: Sequence[Tensor]
    arguments: Sequence[Tensor]
    """The tensors among the arguments, as they are after the calls."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one tensor is from the one that it should be."""

    name: str
    """Such as ``result 0`` or ``inputs[1]``."""

    error: float
    """``|out - ref| / |ref|``, Frobenius norms over finite elements of ``ref``; inf
    where ``out`` is not finite but ``ref`` is, and where integers differ."""

    is_exact: bool
    """Whether only equal values are right: integers."""

    def __str__(self) -> str:
        error = f"relative error {self.error:.2g}"
        if self.error == inf:
            error = "other integers" if self.is_exact else "values that are not finite"
        return f"{error} in {self.name}"


def tensors_in(returned: object) -> list[Tensor]:
    """The tensors in tuples, lists, dictionaries and dataclasses, in order."""
    found: list[Tensor] = []
    for leaf in tree_leaves(returned):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensors_in([getattr(leaf, each.name) for each in fields(leaf)])
    return found


def _kinds(tensors: Iterable[Tensor]) -> str:
    """Types and shapes of `tensors`, such as ``bfloat16 [6, 2048]``."""
    told = [
        f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        for tensor in tensors
    ]
    return ", ".join(told) or "no tensor"


def refuse_other_kinds(arm: str, got: Outcome, other: str, wanted: Outcome) -> None:
    """Refuse results of other types or shapes.

    Raises:
        BackendError: with what both give.
    """
    given, expected = _kinds(got.returned), _kinds(wanted.returned)
    if given != expected:
        msg = f"{arm} returns {given}, {other} {expected}; they must be of one kind"
        raise BackendError(msg)


def is_changed(now: Tensor, before: Tensor) -> bool:
    """Whether any bit of a tensor is another than before."""
    is_same = now.data_ptr() == before.data_ptr()
    return not is_same and bool(_differs(now, before).any())


def differences(
    got: Outcome, want: Outcome, before: Sequence[Tensor], names: Sequence[str]
) -> Iterator[Difference]:
    """The difference of every result, and of every argument that should change.

    An argument that `want` leaves as it was is scratch memory, and may be anything. In
    others the elements count that either changes: few new rows of a large cache would
    else be lost in the norm of the rows that stay.

    Args:
        got: with results of the same types and shapes as `want` has.
        want: what is taken as right.
        before: the tensors among the arguments as they were.
        names: of those.
    """
    pairs = zip(got.returned, want.returned, strict=True)
    for index, (out, ref) in enumerate(pairs):
        yield _difference(f"result {index}", out, ref)
    for index, was in enumerate(before):
        out, ref = got.arguments[index], want.arguments[index]
        if is_changed(ref, was):
            changed = _differs(ref, was) | _differs(out, was)
            yield _difference(names[index], out[changed], ref[changed])


def _difference(name: str, out: Tensor, ref: Tensor) -> Difference:
    return Difference(name, distance(out, ref), is_exact=not _is_inexact(ref))


def _is_inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def distance(out: Tensor, ref: Tensor) -> float:
    """`Difference.error` of two tensors of one type and shape."""
    differs = _differs(out, ref)
    if not differs.any():
        return 0.0
    if not _is_inexact(ref):
        return inf
    wide = torch.complex128 if ref.is_complex() else torch.float64
    known = ref.to(wide)
    apart = torch.linalg.vector_norm(out[differs].to(wide) - known[differs])
    scale = torch.linalg.vector_norm(known[known.isfinite()])
    if not apart:  # zeros of either sign
        return 0.0
    error = float(apart / scale)
    return error if isfinite(error) else inf


def address_of(tensor: Tensor) -> int:
    """Where the memory of `tensor` and its views begins; unique among what is alive."""
    return tensor.untyped_storage().data_ptr()


def spoil(tensor: Tensor) -> None:
    """Write NaN to all that `tensor` lies in, 0 where it has integers.

    Those may be indices, which must not lead out of bounds.
    """
    value = nan if _is_inexact(tensor) else 0
    with torch.inference_mode():  # or results made in that mode could not be written
        _extent(tensor).fill_(value)


def saved(tensor: Tensor) -> Tensor:
    """A copy of all that `tensor` lies in."""
    return _extent(tensor).clone()


def restore(tensor: Tensor, before: Tensor) -> None:
    """Write back what was `saved`."""
    with torch.inference_mode():
        _extent(tensor).copy_(before)


def _extent(tensor: Tensor) -> Tensor:
    """From the first element to the last in one dimension: no memory is there twice."""
    if not tensor.numel():
        return tensor.detach().view(-1)
    dimensions = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1 + sum((size - 1) * stride for size, stride in dimensions)
    return tensor.detach().as_strided((count,), (1,))


def has_nan(tensor: Tensor) -> bool:
    """Whether any element is not a number."""
    return bool((tensor != tensor).any())  # noqa: PLR0124 (also where isnan is missing)


def _differs(one: Tensor, other: Tensor) -> Tensor:
    """Where the bits of two tensors of one type and shape differ, in their shape."""
    if one.is_complex():
        parts = (torch.view_as_real(each.resolve_conj()) for each in (one, other))
        return _differs(*parts).any(-1)
    bits = _BITS[one.element_size()]
    return one.detach().view(bits) != other.detach().view(bits)
