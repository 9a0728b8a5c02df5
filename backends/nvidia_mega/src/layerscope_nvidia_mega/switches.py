"""The mechanisms of the backend, and what each does to the kernels of the chain."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self, TypeAlias

Macros: TypeAlias = tuple[tuple[str, int], ...]
"""Of a kernel."""

ON: Final = "on"
OFF: Final = "off"

AT_ENTRY: Final = ("TRIGGER", 1)
AFTER_WAIT: Final = ("TRIGGER", 2)
LOADS_EARLY: Final = ("LOADS_EARLY", 1)
"""Macros of the standard chain's code/turns.cuh."""

_ROUTING: Final = ("top_k", "align", "top_k+align")
_WEIGHED: Final = (
    *("norm", "qkv", "norm+qkv", "rope_kv_write", "o_proj"),
    *("post_norm", "router", "down+sum"),
)
"""Roles of kernels whose weights are known before their predecessor has ended.

Those of ``down+sum`` are: the kernel before it starts it only after routing has ended.
"""

_ATTENTION: Final = ("attention", "rope_kv_write+attention")
_TRIGGER_AT_ENTRY: Final = (
    *("norm", "qkv", "norm+qkv", "rope_kv_write", *_ATTENTION, "combine"),
    *("o_proj", "post_norm", "router", "down+sum"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """Which of them are on."""

    early_trigger: bool = True
    weight_prefetch: bool = True
    kv_gather: bool = True
    rope_in_query: bool = True
    bitmap_routing: bool = True
    early_experts: bool = True
    norm_in_product: bool = True
    one_launch_draft: bool = True

    @classmethod
    def of(cls, switches: Mapping[str, str]) -> Self:
        """What the values of the switches say; one that is not there is on."""
        named = {each.name: switches.get(each.name, ON) for each in fields(cls)}
        return cls(**{name: value == ON for name, value in named.items()})

    def turns(self) -> dict[str, Macros]:
        """When kernels trigger and load, by role; stock where a role has none.

        ``gate_up`` never triggers before its own wait: what starts early after it
        reads what routing has written.
        """
        macros: dict[str, list[tuple[str, int]]] = {}

        def put(macro: tuple[str, int], roles: tuple[str, ...]) -> None:
            for role in roles:
                macros.setdefault(role, []).append(macro)

        if self.early_trigger:
            put(AT_ENTRY, _TRIGGER_AT_ENTRY)
            put(AFTER_WAIT, ("gate_up",))
        if self.early_experts:
            put(AFTER_WAIT, _ROUTING)
        if self.weight_prefetch:
            put(LOADS_EARLY, _WEIGHED)
        if self.kv_gather:
            put(LOADS_EARLY, _ATTENTION)
        return {role: tuple(each) for role, each in macros.items()}
