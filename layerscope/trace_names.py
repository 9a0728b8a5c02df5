"""What the names of kernels and calls in traces tell, whatever tool wrote them.

Both are regular expressions of polars, found anywhere in a name.
"""

from typing import Final

COLLECTIVE: Final = (
    r"(?i)nccl|rccl|msccl|oneccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|all2all|cross_device_reduce|multimem|userbuffers|lamport|nvshmem|deep_ep|pplx"
    r"|(\b|_)ep_?(dispatch|combine)"
)
"""Kernels that exchange data between ranks: they may wait for other ranks, so they may
take long, and are communication. Libraries of collectives, and custom kernels of
engines; `kernel_rules.toml` says which are whose."""

GRAPH_LAUNCH: Final = r"(?i)GraphLaunch"
"""Calls that launch whole graphs."""
