"""What the kernels cannot run, told before anything is made."""

from importlib.util import find_spec

from layerscope.layers.spec import LayerSpec
from layerscope.plugin import DeviceFacts
from layerscope.regions import Region
from layerscope_standard.attention import matrix_rows, most_block_bytes
from layerscope_standard.experts import MOST_ROWS

_HEAD_DIMS = (64, 128, 256)
_MOST_HIDDEN = 8192
_MOST_MATRIX_ROWS = 128
_MOST_EXPERTS = 512
_MOST_TOP_K = 32
_ALIGNED = 16
_SHARED_BYTES = {"sm_120": 99 << 10}
"""The most that a block may have, by architecture; all others have 227 KiB."""


def needs_communication(spec: LayerSpec) -> str | None:
    """Why `spec` cannot be measured, if its ranks are real ones; from the name on."""
    if spec.tp == 1 or spec.shard_shaped:
        return None
    return (
        f"has no communication between the {spec.tp} ranks; measure one rank's slice "
        "with --shard-shaped"
    )


def missing_packages() -> list[str]:
    """What it takes to compile and launch, and is not there; no import."""
    # A parent that is missing is an error to `find_spec`.
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return ["needs cuda-bindings: pip install 'layerscope[cuda]'"]
    return []


def shapes(spec: LayerSpec) -> list[str]:
    """Every size of `spec` that the kernels are not made for, from the name on."""
    model = spec.model
    width = spec.expert_size if model.experts else spec.mlp_size
    reasons = []
    if model.head_dim not in _HEAD_DIMS:
        sizes = ", ".join(map(str, _HEAD_DIMS))
        reasons.append(f"takes heads of {sizes} elements, not {model.head_dim}")
    if model.hidden_size > _MOST_HIDDEN:
        reasons.append(
            f"takes a hidden size up to {_MOST_HIDDEN}, not {model.hidden_size}"
        )
    reasons += [
        f"takes a {what} that is a multiple of {_ALIGNED}, not {size}"
        for what, size in (("hidden size", model.hidden_size), ("width", width))
        if size % _ALIGNED
    ]
    reasons += [
        f"takes up to {most} {what}, not {count}"
        for what, count, most in (
            ("experts", model.experts, _MOST_EXPERTS),
            ("experts a token", model.experts_per_token, _MOST_TOP_K),
        )
        if count > most
    ]
    return reasons


def shared_memory(spec: LayerSpec, device: DeviceFacts) -> list[str]:
    """What a block of attention needs and `device` does not have, from the name on."""
    most = _SHARED_BYTES.get(device.architecture, 227 << 10)
    if spec.model.head_dim not in _HEAD_DIMS or matrix_rows(spec) > _MOST_MATRIX_ROWS:
        return []  # runs elsewhere, or is refused for that
    needed = most_block_bytes(spec)
    if needed <= most:
        return []
    reason = (
        f"needs {needed >> 10} KiB of shared memory a block, and {device.name} "
        f"({device.architecture}) has {most >> 10}"
    )
    return [reason]


def declines(spec: LayerSpec) -> dict[Region, str]:
    """Regions that the step has too many rows for, from the name on.

    There is a product in every region, and those take up to eight rows.
    """
    if spec.rows > MOST_ROWS:
        why = f"runs at most {MOST_ROWS} rows, not {spec.rows}"
        return dict.fromkeys(spec.regions, why)
    rows = matrix_rows(spec)
    if rows > _MOST_MATRIX_ROWS:
        why = (
            f"takes up to {_MOST_MATRIX_ROWS} new rows times query heads of a KV head, "
            f"not {rows}"
        )
        return {Region.ATTENTION: why}
    return {}
