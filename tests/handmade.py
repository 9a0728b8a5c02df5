"""A small run made by hand: every number in it can be checked on paper.

Two arms and the A/A capture of the first, without any noise:

====================  ============  ===================================
arm                   pass (anchor)  profiled pass
====================  ============  ===================================
reference             40,000 ns     41,000 ns in 3 kernels
fused                 30,000 ns     30,500 ns in 3 kernels, one overlaps
reference (A/A)       40,100 ns     41,000 ns in 3 kernels
====================  ============  ===================================
"""

from pathlib import Path
from typing import Any

import polars as pl

from layerscope.environment import DeviceFacts, Environment
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.run import Run, RunWriter
from layerscope.run_header import Build, Decision, NumericsCheck, RegionBytes, RunHeader
from layerscope.schema import KERNELS, SAMPLES
from layerscope.study import Arm, Study

LAUNCH_NS = 7_000
PASS_NS = {"reference": 40_000, "fused": 30_000, "reference (A/A)": 40_100}
LENGTHS = (8, 16, 24)
CAPTURES = 3
ROUNDS = 6
PASSES = 4
REPLAYS = 2

# region, name, start in the pass, duration
CHAIN = (
    ("attention", "attend", 0, 20_000),
    ("o_proj_all_reduce", "project", 21_000, 5_000),
    ("moe", "experts", 26_000, 13_000),
)
FUSED_CHAIN = (
    ("attention", "attend", 0, 15_000),
    ("o_proj_all_reduce", "project", 14_000, 5_000),
    ("moe", "experts", 19_500, 10_000),
)
CHAINS = {
    "reference": (CHAIN, 41_000),
    "fused": (FUSED_CHAIN, 30_500),
    "reference (A/A)": (CHAIN, 41_000),
}
"""Kernels of a pass and the time from one pass's first start to the next one's."""


def model() -> ModelShape:
    """A mixture of experts that no one serves."""
    return ModelShape(
        name="paper-moe",
        family=Family.QWEN3_MOE,
        layers=2,
        hidden_size=256,
        query_heads=8,
        kv_heads=2,
        head_dim=32,
        rms_norm_eps=1e-6,
        rope_theta=10_000.0,
        experts=8,
        experts_per_token=2,
        expert_size=128,
    )


def study() -> Study:
    """Six rows at 512 tokens of context, two arms."""
    return Study(
        spec=LayerSpec(model=model(), dtype=DType.BFLOAT16, context=512),
        arms=(Arm(backend="reference"), Arm(backend="fused")),
        lengths=LENGTHS,
        captures=CAPTURES,
    )


def environment() -> Environment:
    """A GPU with round numbers."""
    return Environment(
        device=DeviceFacts(
            type="cuda",
            name="Paper GPU",
            architecture="sm_90",
            processors=132,
            memory_bytes=80_000_000_000,
            l2_bytes=50_000_000,
            driver="580.1",
            runtime="13.0",
        ),
        platform="Linux",
        python="3.12.0",
        packages={"layerscope": "0.1.0", "torch": "2.11.0"},
    )


def header(**changes: Any) -> RunHeader:  # noqa: ANN401 (any field of the header)
    """The header of the whole run, with `changes` to its fields."""
    values: dict[str, Any] = {
        "created": "2026-11-29T12:00:00Z",
        "command": ["layerscope", "profile", "--layer", "0"],
        "study": study(),
        "environment": environment(),
        "recorder": "cupti",
        "weights": "random, seed 0",
        "host_memory_bytes": 2_500_000_000,
        "seconds": {"weights": 0.5, "study": 12.0},
        "decisions": [
            Decision(arm="fused", region="attention", backend="fused"),
            Decision(
                arm="fused",
                region="moe",
                backend="reference",
                reason="fused covers attention and o_proj_all_reduce",
            ),
        ],
        "builds": [Build(arm="fused", seconds=1.5, device_bytes=1_000_000)],
        "numerics": [NumericsCheck(arm="fused", error=0.004, bound=0.02, passes=True)],
        "distinct_experts": [[5, 6, 6, 7]],
        "bytes": [
            RegionBytes(arm=arm, region=region, touched=touched, required=required)
            for arm, factor in (("reference", 2), ("fused", 1))
            for region, touched, required in (
                ("attention", 2_000_000 * factor, 2_000_000),
                ("o_proj_all_reduce", 1_000_000 * factor, 1_000_000),
                ("moe", 3_000_000 * factor, 3_000_000),
            )
        ],
    }
    return RunHeader(**(values | changes))


def samples(phases: tuple[str, ...] = ("anchor", "after")) -> pl.DataFrame:
    """One replay of every arm and length a round: ``launch + passes * pass``."""
    rows = [
        {
            "phase": phase,
            "arm": arm,
            "experiment": "captured",
            "capture": capture,
            "round": round_,
            "position": position,
            "passes": passes,
            "step": round_,
            "duration_ns": LAUNCH_NS + passes * PASS_NS[arm],
            "required_bytes": 6_000_000 * passes,
            "sm_clock_mhz": 1_980,
            "memory_clock_mhz": 3_201,
            "temperature_c": 40,
            "power_mw": 300_000,
            "throttle_reasons": 0,
        }
        for phase in phases
        for capture in range(CAPTURES)
        for round_ in range(ROUNDS)
        for position, (arm, passes) in enumerate(
            (arm, passes) for arm in PASS_NS for passes in LENGTHS
        )
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def kernels() -> pl.DataFrame:
    """Replays of four passes of every arm, as `CHAINS` says."""
    rows = [
        {
            "arm": arm,
            "experiment": "captured",
            "capture": capture,
            "round": replay,
            "replay": replay,
            "pass_index": pass_index,
            "node": pass_index * len(chain) + place,
            "kind": "kernel",
            "name": name,
            "region": region,
            "role": None,
            "stream": 7,
            "pass_start_ns": pass_index * period_ns,
            "start_ns": start_ns,
            "duration_ns": duration_ns,
        }
        for arm, (chain, period_ns) in CHAINS.items()
        for capture in range(CAPTURES)
        for replay in range(REPLAYS)
        for pass_index in range(PASSES)
        for place, (region, name, start_ns, duration_ns) in enumerate(chain)
    ]
    launch = {"grid_x": 132, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1}
    launch |= {"block_z": 1, "registers": 64}
    launch |= {"static_shared_bytes": 0, "dynamic_shared_bytes": 1024}
    return pl.DataFrame([row | launch for row in rows], schema=KERNELS)


def run(**changes: Any) -> Run:  # noqa: ANN401 (as for `header`)
    """The whole run in memory, complete unless `changes` say otherwise."""
    return Run(
        header=header(**({"status": "complete", "status_reason": ""} | changes)),
        samples=samples(),
        kernels=kernels(),
        path=Path("paper-run"),
    )


def write(path: Path, **changes: Any) -> Path:  # noqa: ANN401 (as for `header`)
    """The same run as a folder at `path`."""
    made = run(**changes)
    writer = RunWriter(path, made.header)
    writer.add_samples(made.samples)
    writer.add_kernels(made.kernels)
    writer.checkpoint()
    return path
