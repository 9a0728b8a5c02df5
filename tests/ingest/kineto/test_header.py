import json
from typing import Any

import pytest

from layerscope.ingest.kineto.header import Header, devices_of, header_of
from layerscope.trace import TraceDevice


def header(**values: Any) -> Header:  # noqa: ANN401 (JSON)
    """The header of a file that says `values`."""
    return header_of(json.dumps(values).encode())


def device(**values: Any) -> TraceDevice:  # noqa: ANN401 (JSON)
    """The one device of such a file, for which HIP wrote it if `hip`."""
    is_hip = values.pop("hip", False)
    versions = {"hip_runtime_version": 70_051_831} if is_hip else {}
    (found,) = header(deviceProperties=[values], **versions).devices
    return found


@pytest.mark.parametrize(
    ("values", "architecture"),
    [
        ({"name": "NVIDIA B200", "computeMajor": 10, "computeMinor": 0}, "sm_100"),
        ({"name": "Tesla V100", "major": 7, "minor": 0}, "sm_70"),
        ({"name": "", "computeMajor": 9, "computeMinor": 4, "hip": True}, "gfx942"),
        ({"name": "", "computeMajor": 9, "computeMinor": 5, "warpSize": 64}, "gfx950"),
        ({"name": "AMD MI210", "computeMajor": 9, "computeMinor": 0}, "gfx90a"),
        ({"name": "AMD Radeon Graphics", "computeMajor": 9, "computeMinor": 0}, ""),
        ({"name": "ARTEMIS"}, ""),
    ],
)
def test_architectures_are_told(values: dict[str, Any], architecture: str) -> None:
    """From the compute capability, which AMD's GPUs also have, where it is clear."""
    assert device(id=0, **values).architecture == architecture


@pytest.mark.parametrize(
    ("values", "rank", "ranks"),
    [
        ({"backend": "nccl", "rank": 34, "world_size": 300}, 34, 300),
        ({"rank": 0}, 0, None),
        ({"backend": "nccl"}, None, None),
        ({"rank": "0", "world_size": True}, None, None),
        ([], None, None),
    ],
)
def test_ranks_are_told(values: object, rank: int | None, ranks: int | None) -> None:
    """As far as the file says them."""
    found = header(distributedInfo=values)
    assert (found.rank, found.ranks) == (rank, ranks)


def test_keys_are_found_in_damaged_text() -> None:
    """What is broken elsewhere, and what stands in texts, does not matter."""
    text = (
        b'{"log": ["a"b", "\\"baseTimeNanoseconds\\": 1"], "displayTimeUnit": "ms",'
        b'"deviceProperties": [{"id": 3, "name": "a}]"}], "baseTimeNanoseconds": 7, '
        b'"distributedInfo": {"rank": 5, "wor'
    )
    assert header_of(text) == Header(
        devices=(TraceDevice(device=3, name="a}]"),),
        unit="ms",
        base_ns=7,
        written_by="PyTorch profiler",
    )


@pytest.mark.parametrize(
    "text",
    [
        b'"deviceProperties": ' + b"[" * 100_000 + b"]" * 100_000,
        b'"deviceProperties": [[], 5, null]',
        b'"deviceProperties": [{"id": [], "computeMajor": {}}]',
        b'"distributedInfo": "\\',
        b'"distributedInfo": ',
        b'"baseTimeNanoseconds": 1e400',
        b'"baseTimeNanoseconds": ' + b"9" * 50,
    ],
)
def test_nonsense_is_no_header(text: bytes) -> None:
    """Values of another kind are as if they were not there."""
    found = header_of(text)
    assert (found.rank, found.base_ns) == (None, None)
    assert {each.name for each in found.devices} <= {""}


@pytest.mark.parametrize(
    ("values", "written_by"),
    [
        ({"schemaVersion": 1}, "PyTorch profiler"),
        ({"schemaVersion": 1, "cuda_runtime_version": 12_090}, "CUDA 12.9"),
        ({"schemaVersion": 1, "hip_runtime_version": 70_253_211}, "HIP 7.2.53211"),
        ({"traceEvents": 1}, ""),
    ],
)
def test_tools_are_told(values: dict[str, Any], written_by: str) -> None:
    """With the version of the runtime, where the file has it."""
    assert header(**values).written_by.endswith(written_by)


def test_devices_that_the_list_lacks_are_as_all_others() -> None:
    """If those differ, nothing is known of one that is not listed."""
    alike = header(deviceProperties=[{"id": each, "name": "A"} for each in (0, 1)])
    assert devices_of(alike, []) == alike.devices
    assert devices_of(alike, [9, 1]) == (
        TraceDevice(device=1, name="A"),
        TraceDevice(device=9, name="A"),
    )
    mixed = header(deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "B"}])
    assert devices_of(mixed, [1, 2]) == (
        TraceDevice(device=1, name="B"),
        TraceDevice(device=2),
    )
