"""The CUPTI recorder: exact start, end and graph node of every kernel, copy and fill.

``CONCURRENT_KERNEL`` keeps kernels concurrent, so programmatic overlap stays visible.
All records of a graph launch share its correlation id, and a record's graph node id
carries the node's number in its low 32 bits, so record -> node -> region is exact.
"""

import ctypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from cupti import cupti

from layerscope.errors import MeasurementError
from layerscope.graphs.cuda import RECORDED_KINDS
from layerscope.graphs.replay import Replay
from layerscope.record.cupti_buffers import Buffers, Records
from layerscope.record.names import demangled
from layerscope.record.nvtx import arm_range
from layerscope.record.recorder import Event, Launch, Place, Recorded

_NODE_MASK: Final = 0xFFFFFFFF
_KINDS: Final = {
    int(cupti.ActivityKind.CONCURRENT_KERNEL): "kernel",
    int(cupti.ActivityKind.MEMCPY): "copy",
    int(cupti.ActivityKind.MEMSET): "fill",
}
_COPY_NAMES: Final = {
    int(cupti.ActivityMemcpyKind.HTOD): "copy host to device",
    int(cupti.ActivityMemcpyKind.DTOH): "copy device to host",
    int(cupti.ActivityMemcpyKind.DTOD): "copy device to device",
}
_COMMON: Final = (
    "correlation_id",
    "graph_node_id",
    "stream_id",
    "start",
    "end",
)
_KERNEL_FIELDS: Final = (
    *_COMMON,
    "name",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers_per_thread",
    "static_shared_memory",
    "dynamic_shared_memory",
)


class CuptiRecorder:
    """Records graph launches through CUPTI's activity API."""

    name = "cupti"

    def __init__(self) -> None:
        """Nothing is attached yet."""
        self._buffers = Buffers()
        self._node_numbers: dict[Replay, dict[int, int]] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Enable the three activity kinds for the block, then detach CUPTI."""
        self._buffers.attach()
        try:
            yield
        finally:
            try:
                torch.cuda.synchronize()
                self._buffers.flush()
            finally:
                self._buffers.detach()
                self._node_numbers.clear()  # replays hold the problem they run on

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Launch all, flush once, and group the records by launch.

        Raises:
            MeasurementError: CUPTI returned records of more or fewer launches than
                were made, so that none can be told apart.
        """
        torch.cuda.synchronize()
        self._buffers.flush()
        self._buffers.take()  # what others enqueued before
        for launch in launches:
            with arm_range(launch.arm):
                launch.replay.launch()
        torch.cuda.synchronize()
        self._buffers.flush()
        groups: dict[int, list[tuple[int, Event]]] = defaultdict(list)
        for kind, records in self._buffers.take().items():
            for correlation, node_id, event in _events(kind, records):
                groups[correlation].append((node_id, event))
        if len(groups) != len(launches):
            msg = (
                f"CUPTI returned records of {len(groups)} launches where "
                f"{len(launches)} were made, so none can be told apart; "
                "try --recorder torch.profiler"
            )
            raise MeasurementError(msg)
        # Correlation ids grow with every API call of the process.
        return [
            self._assign(launch, groups[correlation])
            for launch, correlation in zip(launches, sorted(groups), strict=True)
        ]

    def _assign(self, launch: Launch, records: list[tuple[int, Event]]) -> Recorded:
        replay = launch.replay
        numbers = self._numbers(replay)
        events, unmapped = [], 0
        for node_id, event in records:
            node = numbers.get(node_id & _NODE_MASK)
            if node is None:
                unmapped += 1
            else:
                events.append(event._replace(node=node))
        places = {
            node.index: Place(node.pass_index, node.region, node.role)
            for node in replay.nodes
            if node.kind in RECORDED_KINDS
        }
        return Recorded(launch, tuple(events), places, replay.edges, unmapped)

    def _numbers(self, replay: Replay) -> dict[int, int]:
        """Low bits of the CUPTI node id -> creation order, for one replay."""
        if replay not in self._node_numbers:
            self._node_numbers[replay] = {
                cupti.get_graph_node_id(node.handle) & _NODE_MASK: node.index
                for node in replay.nodes
            }
        return self._node_numbers[replay]


def _events(kind: int, records: Records) -> Iterator[tuple[int, int, Event]]:
    """(correlation id, graph node id, event) of each record."""
    if _KINDS[kind] == "kernel":
        yield from _kernel_events(records)
        return
    names = ["fill"] * len(records)
    if _KINDS[kind] == "copy":
        kinds = records["copy_kind"].tolist()
        names = [_COPY_NAMES.get(copy_kind, "copy") for copy_kind in kinds]
    for row, name in zip(records[list(_COMMON)].tolist(), names, strict=True):
        correlation, node_id, stream, start, end = row
        yield correlation, node_id, Event(-1, _KINDS[kind], name, stream, start, end)


def _kernel_events(records: Records) -> Iterator[tuple[int, int, Event]]:
    # CUPTI keeps one string for all records of a kernel while its module is loaded.
    names = {
        address: demangled(ctypes.string_at(address).decode(errors="replace"))
        for address in np.unique(records["name"]).tolist()
    }
    for row in records[list(_KERNEL_FIELDS)].tolist():
        correlation, node_id, stream, start, end, name, *launch = row
        event = Event(
            -1,
            "kernel",
            names[name],
            stream,
            start,
            end,
            tuple(launch[0:3]),
            tuple(launch[3:6]),
            *launch[6:],
        )
        yield correlation, node_id, event
