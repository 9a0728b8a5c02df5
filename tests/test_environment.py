from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from layerscope import environment
from layerscope.environment import DeviceFacts, Environment
from tests import handmade


def changed(**device: object) -> Environment:
    """The handmade environment with other facts of its device."""
    before = handmade.environment()
    facts = msgspec.structs.replace(before.device, **device)
    return msgspec.structs.replace(before, device=facts)


def files(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """Let every file hold `text`, or none be readable."""

    def read_text(path: Path, encoding: str) -> str:
        assert encoding == "utf-8"
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(Path, "read_text", read_text)


def test_the_same_environment_has_no_differences() -> None:
    """Two runs on one machine may be compared."""
    assert environment.differences(handmade.environment(), changed()) == []


def test_every_checked_field_that_differs_is_named() -> None:
    """Each difference is one line with both values, in the order of the fields."""
    other = changed(name="Other GPU", processors=108)
    other = msgspec.structs.replace(other, packages={"triton": "3.5.0"})
    assert environment.differences(handmade.environment(), other) == [
        "device.name: Paper GPU against Other GPU",
        "device.processors: 132 against 108",
        "packages.torch: 2.11.0 against none",
        "packages.triton: none against 3.5.0",
    ]


def test_what_does_not_move_times_is_not_checked() -> None:
    """Another index, kernel, Python or version of layerscope keeps runs comparable."""
    other = msgspec.structs.replace(
        changed(index=3, memory_bytes=1),
        platform="another",
        python="3.11.0",
        packages={"layerscope": "9.9", "torch": "2.11.0"},
    )
    assert environment.differences(handmade.environment(), other) == []


def test_collect_takes_the_device_as_given_and_finds_the_packages() -> None:
    """The device is the caller's; installed packages come with their versions."""
    device = DeviceFacts(type="cpu", name="any")
    found = environment.collect(device)
    assert found.device == device
    assert found.packages["polars"] == metadata.version("polars")
    assert found.python.startswith("3.")


def test_packages_that_are_not_installed_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing package is no entry rather than an empty version."""
    monkeypatch.setattr(environment, "PACKAGES", ("polars", "no-such-distribution"))
    found = environment.collect(DeviceFacts(type="cpu", name="any"))
    assert list(found.packages) == ["polars"]


def test_the_cpu_is_named_as_the_kernel_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first model name of /proc/cpuinfo is taken."""
    files(
        monkeypatch,
        "processor\t: 0\nmodel name\t: Paper CPU: 2 GHz\nmodel name\t: Other\n",
    )
    assert environment.cpu_name() == "Paper CPU: 2 GHz"


@pytest.mark.parametrize("text", ["processor\t: 0\n", None])
def test_a_cpu_without_a_name_is_called_by_its_architecture(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """Without a model name, or without /proc, the architecture stands in."""
    files(monkeypatch, text)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert environment.cpu_name() == "riscv64"


def test_available_memory_is_what_the_kernel_can_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MemAvailable counts, in units of 1024 bytes, not what is free."""
    files(monkeypatch, "MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   7 kB\n")
    assert environment.available_memory_bytes() == 7 * 1024


def test_without_proc_all_memory_counts_as_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the kernel does not tell, the machine's memory is the limit."""
    files(monkeypatch, None)
    sizes = {"SC_PHYS_PAGES": 5, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)
    assert environment.available_memory_bytes() == 5 * 4096


def test_what_only_one_tells_may_be_no_difference() -> None:
    """A trace knows no driver and no packages, and perhaps not its device."""
    told = handmade.environment()
    device = DeviceFacts(type="cuda", name="Other GPU", architecture="sm_90")
    trace = msgspec.structs.replace(told, device=device, packages={})
    assert environment.differences(told, trace, only_told=True) == [
        "device.name: Paper GPU against Other GPU"
    ]
    unknown = msgspec.structs.replace(trace, device=DeviceFacts(type="", name=""))
    assert environment.differences(told, unknown, only_told=True) == []
