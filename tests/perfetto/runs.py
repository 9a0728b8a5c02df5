"""A run for traces, made by hand: all that a trace can show is in it once.

Two passes that count and one on either side, in two replays of each graph. Of the arm
``fused``, a pass has a copy, two kernels that overlap on one stream, one on another
stream, and one of no length; its twin runs the same one after the other.
"""

from pathlib import Path
from typing import Any

import polars as pl

from layerscope.run import Run, RunWriter
from layerscope.schema import EDGES, KERNELS, SAMPLES
from tests import handmade

PASSES = 4
REPLAYS = 2
LAUNCH = {"grid_x": 132, "grid_y": 2, "grid_z": 1, "block_x": 256, "block_y": 1}
LAUNCH |= {"block_z": 1, "registers": 64, "static_shared_bytes": 48}
LAUNCH |= {"dynamic_shared_bytes": 1024}

# kind, name, region, role, stream, start in the pass, duration
Row = tuple[str, str, str, str | None, int, int, int]
PERIOD_NS = 1_000
OVERLAPPING: list[Row] = [
    ("copy", "memcpy", "attention", None, 7, 10, 90),
    ("kernel", "attend", "attention", "attend", 7, 110, 300),
    ("kernel", "experts", "moe", "gate_up", 7, 400, 300),  # 10 before the end
    ("kernel", "experts", "moe", "down", 9, 450, 500),
    ("kernel", "nothing", "moe", None, 7, 950, 0),
]
SERIAL: list[Row] = [
    ("copy", "memcpy", "attention", None, 7, 0, 90),
    ("kernel", "attend", "attention", "attend", 7, 100, 300),
    ("kernel", "experts", "moe", "gate_up", 7, 400, 250),
    ("kernel", "experts", "moe", "down", 7, 650, 250),
    ("kernel", "nothing", "moe", None, 7, 950, 0),
]
PLAIN: list[Row] = [
    ("kernel", "attend", "attention", None, 7, 0, 400),
    ("kernel", "experts", "moe", None, 7, 450, 550),
]
GRAPHS = {
    ("fused", "captured"): OVERLAPPING,
    ("fused", "serial"): SERIAL,
    ("reference", "captured"): PLAIN,
}

# source and target in the pass, programmatic; and from its last to the next one's first
EDGES_OF_PASS = [
    (0, 1, False),
    (1, 2, True),
    (1, 3, False),
    (2, 4, False),
    (3, 4, False),
]


def kernels() -> pl.DataFrame:
    """`schema.KERNELS` of `GRAPHS`."""
    rows = [
        dict.fromkeys(KERNELS)
        | {
            "arm": arm,
            "experiment": experiment,
            "capture": 5,
            "round": replay,
            "replay": replay,
            "pass_index": index,
            "node": index * len(chain) + place,
            "kind": kind,
            "name": name,
            "region": region,
            "role": role,
            "stream": stream,
            "pass_start_ns": index * PERIOD_NS,
            "start_ns": start_ns - chain[0][5],
            "duration_ns": duration_ns,
        }
        | (LAUNCH if kind == "kernel" else {})
        for (arm, experiment), chain in GRAPHS.items()
        for replay in range(REPLAYS)
        for index in range(PASSES)
        for place, (
            kind,
            name,
            region,
            role,
            stream,
            start_ns,
            duration_ns,
        ) in enumerate(chain)
    ]
    return pl.DataFrame(rows, schema=KERNELS)


def edges() -> pl.DataFrame:
    """`schema.EDGES` of the arm ``fused``."""
    length = len(OVERLAPPING)
    inner = [
        (index * length + source, index * length + target, early)
        for index in range(PASSES)
        for source, target, early in EDGES_OF_PASS
    ]
    between = [
        (index * length - 1, index * length, False) for index in range(1, PASSES)
    ]
    rows = [
        {
            "arm": "fused",
            "experiment": "captured",
            "source": source,
            "target": target,
            "programmatic": early,
            "from_port": int(early),
            "to_port": 0,
        }
        for source, target, early in [*inner, *between]
    ]
    return pl.DataFrame(rows, schema=EDGES)


def samples() -> pl.DataFrame:
    """Three rounds of anchors of both arms: clock and power of each."""
    told = [(1_900, 300_400), (1_980, 310_600), (1_985, 450_000)]
    rows = [
        dict.fromkeys(SAMPLES)
        | {
            "phase": "anchor",
            "arm": arm,
            "experiment": "captured",
            "capture": 0,
            "round": round_,
            "position": 0,
            "passes": PASSES,
            "step": 0,
            "duration_ns": PASSES * PERIOD_NS,
            "sm_clock_mhz": clock,
            "power_mw": power,
        }
        for arm in ("reference", "fused")
        for round_, (clock, power) in enumerate(told)
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def run(**changes: Any) -> Run:  # noqa: ANN401 (any field of a run)
    """The whole run in memory, with `changes`."""
    fields: dict[str, Any] = {
        "header": handmade.header(status="complete", status_reason=""),
        "samples": samples(),
        "kernels": kernels(),
        "edges": edges(),
        "path": Path("paper-run"),
    }
    return Run(**(fields | changes))


def write(path: Path, **changes: Any) -> Path:  # noqa: ANN401 (as for `run`)
    """The same run as a folder at `path`."""
    made = run(**changes)
    writer = RunWriter(path, made.header)
    writer.add_samples(made.samples)
    writer.add_kernels(made.kernels)
    writer.set_edges(made.edges)
    writer.checkpoint()
    return path
