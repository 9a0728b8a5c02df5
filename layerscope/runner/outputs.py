"""Whether an edited graph has done what the captured one does."""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerscope.layers.reference import relative_error


def kept(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Copies of `outputs`, to compare later ones with."""
    return [tensor.clone() for tensor in outputs]


def why_other(
    before: Sequence[Tensor], after: Sequence[Tensor], bound: float | None = None
) -> str:
    """What speaks against results, beside those of the captured graph on equal inputs.

    Args:
        before: what the captured graph gave.
        after: what the edited one gave, in the same order.
        bound: relative error, in the Frobenius norm, that is taken as equal where
            results are of floating point; None asks for equal bits.

    Returns:
        The reason, or an empty string.
    """
    for old, new in zip(before, after, strict=True):
        if torch.equal(_bits(old), _bits(new)):
            continue
        if bound is None or not old.is_floating_point():
            return "its results are not those of the captured graph, bit for bit"
        error = relative_error(new, old)
        if not error <= bound:
            return (
                f"its results differ from those of the captured graph by {error:.2g}, "
                f"bound {bound:.2g}"
            )
    return ""


def _bits(tensor: Tensor) -> Tensor:
    """`tensor` as bytes: NaN is not equal to itself."""
    return tensor.detach().contiguous().flatten().view(torch.uint8)
