from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest

from layerscope.environment import DeviceFacts
from layerscope.report import build_report
from layerscope.run import Run
from layerscope.run_header import Drop
from tests import handmade


def facts(run: Run) -> dict[str, str]:
    """The header of the report of `run`."""
    return {fact.label: fact.text for fact in build_report(run).facts}


def with_spec(**changes: Any) -> Run:  # noqa: ANN401 (any field of the spec)
    """The hand-made run of another spec."""
    study = handmade.study()
    spec = msgspec.structs.replace(study.spec, **changes)
    return handmade.run(study=msgspec.structs.replace(study, spec=spec))


def on_cpu() -> Run:
    """The hand-made run, had it been made on a CPU."""
    device = DeviceFacts(type="cpu", name="Paper CPU", processors=2)
    environment = msgspec.structs.replace(handmade.environment(), device=device)
    study = msgspec.structs.replace(handmade.study(), lengths=(8,))
    run = handmade.run(environment=environment, study=study, recorder="torch.profiler")
    clocks = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_mw")
    samples = run.samples.filter(pl.col("passes") == 8).with_columns(
        pl.lit(None, pl.Int64).alias(name) for name in (*clocks, "throttle_reasons")
    )
    return replace(run, samples=samples)


def test_the_whole_header() -> None:
    """Every fact of the hand-made run, in reading order."""
    assert facts(handmade.run()) == {
        "device": "Paper GPU, sm_90, 132 SMs, 80.00 GB",
        "driver": "580.1, CUDA 13.0",
        "software": "layerscope 0.1.0, torch 2.11.0",
        "model": "paper-moe, layer 0 of 2",
        "step": "6 rows = 1 request × (1 + 5 draft tokens), context 512, "
        "KV pages of 16",
        "types": "bfloat16 activations, bfloat16 weights",
        "weights": "random, seed 0",
        "ranks": "1, the whole layer",
        "routing": "pinned, uniform; 5 to 7 of 8 experts a pass, mean 6.0",
        "replays": "of 8, 16, 24 passes in one graph; a pass is the slope",
        "samples": "reference 864 passes in 18 rounds (effective 18 within captures), "
        "fused 864 passes in 18 rounds (effective 18 within captures), "
        "reference (A/A) 864 passes in 18 rounds (effective 18 within captures); "
        "3 captures an arm",
        "recorder": "cupti; 216 records of 3 captures, all mapped to regions",
        "numerics": "relative error and bound: fused 0.004 of 0.02",
        "built": "fused 1.5 s, 1.000 MB",
        "took": "weights 0.5 s, study 12.0 s",
        "host memory": "2.500 GB at the peak of the process",
        "noise floor": "100 ns (0.25 % of the layer), from reference (A/A)",
        "linearity": "middle length off the line by 0 ns (0.00 %) a pass at most "
        "(fused), within the noise floor",
        "observer effect": "reference +1.00 µs (+2.50 %, 95 % +1.00 … +1.00), "
        "+333 ns a kernel; "
        "fused +500 ns (+1.67 %, 95 % +500 … +500), +167 ns a kernel; "
        "reference (A/A) +900 ns (+2.24 %, 95 % +900 … +900), +300 ns a kernel",
        "anchors again": "0 ns (0.00 %) after profiling (fused), within the 95 % "
        "spread of captures",
        "clocks": "SM 1,980 (1,980 … 1,980) MHz, memory 3,201 (3,201 … 3,201) MHz "
        "(median, lowest … highest)",
        "heat": "up to 40 °C, up to 300 W; throttled by: nothing",
        "dropped replays": "none",
    }


def test_a_cpu_says_that_it_has_no_graphs() -> None:
    """On a CPU arms run as they are, and nothing is told of clocks or a driver."""
    found = facts(on_cpu())
    assert found["device"] == "Paper CPU, 2 threads, CPU"
    assert found["replays"] == (
        "of 8 passes; a CPU has no graphs: arms run as they are, and operators are "
        "the kernels"
    )
    assert {"driver", "clocks", "heat", "linearity"}.isdisjoint(found)


def test_a_shard_is_labelled() -> None:
    """A slice of one rank never passes for N real ranks."""
    run = with_spec(tp=4, shard_shaped=True)
    assert facts(run)["ranks"] == (
        "shard-shaped: slice of one rank of 4, communication left out"
    )
    assert "shard-shaped: the all-reduce between ranks is in no figure" in (
        build_report(run).notes
    )
    assert facts(with_spec(tp=4))["ranks"] == "4, real"


def test_several_requests() -> None:
    """Rows are requests times the tokens that each verifies."""
    assert facts(with_spec(requests=2, draft_tokens=3))["step"].startswith(
        "8 rows = 2 requests × (1 + 3 draft tokens), "
    )


def test_drops_are_counted() -> None:
    """Replays that were thrown away are counted with their reason."""
    run = handmade.run(drops=[Drop(arm="fused", replays=3, reason="a node is missing")])
    assert facts(run)["dropped replays"] == "3 of fused: a node is missing"


def test_a_bent_line_is_called_so() -> None:
    """A middle length that is off by more than the noise floor is beyond it."""
    run = handmade.run()
    bend = pl.when(pl.col("passes") == 16).then(1_600).otherwise(0)
    samples = run.samples.with_columns(duration_ns=pl.col("duration_ns") + bend)
    # 1,600 ns over the 8 passes between the shortest and the middle length
    assert facts(replace(run, samples=samples))["linearity"] == (
        "middle length off the line by +200 ns (+0.50 %) a pass at most (fused), "
        "beyond the noise floor"
    )


@pytest.mark.parametrize("captures", [0, 2])
def test_an_unknown_noise_floor_is_called_so(captures: int) -> None:
    """With too few A/A captures no number is given for the noise, nor held to it."""
    run = handmade.run()
    is_kept = (pl.col("arm") != "reference (A/A)") | (pl.col("capture") < captures)
    found = facts(replace(run, samples=run.samples.filter(is_kept)))
    assert found["noise floor"] == "unknown: needs 3 captures of reference (A/A)"
    assert found["linearity"] == (
        "middle length off the line by 0 ns (0.00 %) a pass at most (fused), "
        "noise floor unknown"
    )


def test_an_observer_effect_that_may_be_none_is_called_so() -> None:
    """An interval around zero is given as it is, without a cost a kernel.

    Captures of the reference take 40,000 and 1,000 ns more or less; the profiled ones
    do not differ. Of three, all the lowest are drawn 1 time in 27, so the interval
    reaches to 1,000 ns times sqrt(3 / 2) * 4.303 / 1.960 on either side.
    """
    run = handmade.run()
    wobble = pl.when(pl.col("arm") == "reference").then(
        pl.col("passes") * (pl.col("capture") - 1) * 1_000
    )
    samples = run.samples.with_columns(
        duration_ns=pl.col("duration_ns") + wobble.otherwise(0)
    )
    effect = facts(replace(run, samples=samples))["observer effect"]
    assert effect.partition(";")[0] == (
        "reference +1.00 µs (+2.50 %, 95 % −1.69 … +3.69), not told from zero"
    )


def test_anchors_after_a_single_capture_are_no_evidence() -> None:
    """One capture before the profiler shows nothing of what captures differ by."""
    run = handmade.run()
    one = run.samples.filter(pl.col("capture") == 0)
    slower = pl.when(pl.col("phase") == "after").then(9_000).otherwise(0)
    one = one.with_columns(duration_ns=pl.col("duration_ns") + slower)
    moved = replace(run, samples=one)
    assert facts(moved)["anchors again"] == "unknown: one capture"
    assert build_report(moved).warnings == ()


def test_a_shift_beyond_the_spread_of_captures_is_called_so() -> None:
    """The fact names the arm that moved furthest beyond it."""
    run = handmade.run()
    is_moved = (pl.col("phase") == "after") & (pl.col("arm") == "reference")
    slower = pl.when(is_moved).then(pl.col("passes") * 400).otherwise(0)
    samples = run.samples.with_columns(duration_ns=pl.col("duration_ns") + slower)
    assert facts(replace(run, samples=samples))["anchors again"] == (
        "+400 ns (+1.00 %) after profiling (reference), beyond the 95 % spread of "
        "captures"
    )


def test_what_an_older_run_does_not_tell_is_left_out() -> None:
    """Runs that know neither their weights nor their memory say nothing of them."""
    found = facts(handmade.run(weights="", host_memory_bytes=0, seconds={}))
    assert {"weights", "host memory", "took"}.isdisjoint(found)


def test_what_the_study_did_is_told_where_it_took_time() -> None:
    """Without experiments nothing was tried and no region taken out."""
    phases = {"trying experiments": 0.0, "anchors": 8.25, "knock-outs": 0.04}
    found = facts(handmade.run(phases=phases))
    assert found["took"] == "weights 0.5 s, study 12.0 s (anchors 8.2 s)"


def test_nothing_measured_is_told_as_nothing() -> None:
    """A run without any sample still says what would have been measured."""
    run = handmade.run(numerics=[], builds=[], distinct_experts=[], recorder="")
    empty = replace(run, samples=run.samples.clear(), kernels=run.kernels.clear())
    found = facts(empty)
    assert found["samples"] == "none"
    assert found["recorder"] == "none"
    assert found["routing"] == "pinned, uniform"
    assert {"numerics", "built", "observer effect", "anchors again"}.isdisjoint(found)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0x1, "nothing"),
        (0x5, "software power cap"),
        (0x60, "software thermal slowdown, hardware thermal slowdown"),
        (0x8000, "unknown reason 0x8000"),
    ],
)
def test_throttle_reasons_are_words(bits: int, text: str) -> None:
    """NVML's bits are named; idling is no throttling; an unknown bit is not lost."""
    run = handmade.run()
    samples = run.samples.with_columns(throttle_reasons=pl.lit(bits, pl.Int64))
    throttled = replace(run, samples=samples)
    assert facts(throttled)["heat"].endswith(f"; throttled by: {text}")
    is_warned = f"the clock was held down: {text}" in build_report(throttled).warnings
    assert is_warned == (text != "nothing")
