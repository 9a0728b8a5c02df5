"""Mechanisms that change nothing: where a kernel does not fit, or is not there."""

from layerscope.layers.spec import LayerSpec
from layerscope.plugin import DeviceFacts
from layerscope.regions import Region
from layerscope_nvidia_mega import norm_product, rope_attention
from layerscope_standard import limits

_OF_ATTENTION = ("kv_gather", "rope_in_query", "norm_in_product")
_OF_ROUTING = ("bitmap_routing", "early_experts")


def idle(spec: LayerSpec, device: DeviceFacts) -> dict[str, str]:
    """Of a layer; see `BackendSpec.idle`."""
    found: dict[str, str] = {}
    if not spec.model.experts:
        found |= dict.fromkeys(_OF_ROUTING, "nothing is routed, the MLP is dense")
    declined = limits.declines(spec).get(Region.ATTENTION)
    if declined is not None:
        why = f"attention runs elsewhere, for this backend {declined}"
        return found | dict.fromkeys(_OF_ATTENTION, why)
    outputs = (spec.query_heads + 2 * spec.kv_heads) * spec.model.head_dim
    size, processors = spec.model.hidden_size, device.processors
    reasons = {
        "rope_in_query": rope_attention.why_not(spec),
        "norm_in_product": norm_product.why_not(outputs, size, processors),
    }
    return found | {name: why for name, why in reasons.items() if why}
