import os
import warnings
from pathlib import Path

import pytest
import torch

from layerscope.doctor import gpu
from layerscope.doctor.gpu_state import GpuState, Unreadable
from layerscope.environment import DeviceFacts
from layerscope.graphs import device
from layerscope.report.diagnosis import Finding, State

GONE = 2**22 + 1  # above the largest process id of Linux
SEEN = GpuState(driver="580.159.04", cuda=(13, 0), gpus=1)
UNSEEN = Unreadable("nvidia-ml-py is not installed", is_installed=False)
NVIDIA = DeviceFacts(
    type="cuda",
    name="Paper GPU",
    index=1,
    architecture="sm_90",
    processors=132,
    memory_bytes=150_100_000_000,
    l2_bytes=62_910_000,
)
AMD = DeviceFacts(type="hip", name="Paper AMD", architecture="gfx942", processors=304)


def built_for(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None = None
) -> None:
    """Let torch be a build for `cuda`, `hip`, or CPUs only."""
    monkeypatch.setattr(torch, "__version__", "9.9")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)


def by_topic(findings: list[Finding]) -> dict[str, tuple[State, str]]:
    """State and what was found, by topic."""
    return {finding.topic: (finding.state, finding.found) for finding in findings}


def test_what_torch_warns_of_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is too old is told as a warning, and nowhere else."""

    def warn() -> bool:
        warnings.warn("the driver is too old\nplease update", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    assert gpu.torch_sees_gpu() == (False, "the driver is too old")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu.torch_sees_gpu() == (True, "")


def test_a_cpu_build_without_a_gpu_has_nothing_to_mend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A laptop measures its CPU."""
    built_for(monkeypatch, None)
    assert gpu.absent(UNSEEN, "", wanted=False, environ={}) == Finding(
        "GPU", State.NOT_APPLICABLE, "torch 9.9 is built for CPUs only"
    )


def test_a_cpu_build_beside_a_gpu_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML sees what torch cannot use."""
    built_for(monkeypatch, None)
    assert gpu.absent(SEEN, "", wanted=False, environ={}) == Finding(
        "GPU",
        State.LIMITED,
        "torch 9.9 is built for CPUs only; a driver for CUDA 13.0 is here",
        "only the CPU is measured",
        "install torch for the GPU (see pytorch.org/get-started)",
    )


@pytest.mark.parametrize(
    ("warning", "found"),
    [("", "torch finds none"), ("too old", "torch finds none: too old")],
)
def test_a_build_for_gpus_without_one_is_a_limit(
    monkeypatch: pytest.MonkeyPatch, warning: str, found: str
) -> None:
    """What torch warned of is the cause."""
    built_for(monkeypatch, "13.0")
    told = gpu.absent(UNSEEN, warning, wanted=False, environ={})
    assert (told.state, told.found, told.blocks) == (State.LIMITED, found, False)
    assert told.fix == "nvidia-smi or rocm-smi must list it; in a container, pass it in"


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]
)
def test_a_hidden_gpu_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An empty value hides all GPUs, and is easily overlooked."""
    built_for(monkeypatch, "13.0")
    told = gpu.absent(SEEN, "", wanted=False, environ={name: ""})
    assert told.found == f"torch finds none; {name} is ''"
    assert told.fix == f"unset {name}"


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_a_gpu_that_was_asked_for_by_name_blocks(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None
) -> None:
    """With --device cuda a CPU will not do, and there is always a way out."""
    built_for(monkeypatch, cuda)
    told = gpu.absent(UNSEEN, "", wanted=True, environ={})
    assert (told.state, told.blocks) == (State.MISSING, True)
    assert told.meaning == "--device cuda has nothing to measure"
    assert told.fix


def test_a_gpu_is_told_with_its_size_and_number() -> None:
    """Its number is torch's, of those that are visible."""
    assert gpu.present(NVIDIA, 2) == Finding(
        "GPU",
        State.OK,
        "Paper GPU, sm_90, 132 SMs, 150.1 GB, L2 62.91 MB, index 1 of 2 visible",
    )
    assert "gfx942, 304 CUs" in gpu.present(AMD, 1).found


def test_a_gpu_that_does_not_answer_blocks() -> None:
    """One line of what torch raised."""
    told = gpu.unusable(RuntimeError("CUDA error: uncorrectable ECC error\nadvice"))
    assert told.found == "CUDA error: uncorrectable ECC error"
    assert (told.state, told.blocks) == (State.REFUSED, True)


def test_a_gpu_of_our_own_is_told_topic_by_topic() -> None:
    """Nobody else, no MPS, no MIG."""
    assert by_topic(gpu.sharing([], NVIDIA, has_nvml=True)) == {
        "MPS": (State.OK, "off"),
        "MIG": (State.OK, "off"),
        "other processes": (State.OK, "none"),
    }


def test_every_reason_that_profile_refuses_by_has_its_topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reasons are those of the device module itself, each with a way out."""
    pipe = tmp_path / str(os.getpid())  # a number that is no process's
    pipe.mkdir()
    (pipe / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipe))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(device, "facts", lambda _: NVIDIA)
    monkeypatch.setattr(device, "mig_enabled", lambda *_: True)
    monkeypatch.setattr(
        device, "foreign_compute_processes", lambda *_, **__: [os.getpid(), GONE]
    )
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    reasons = device.refusals(torch.device("cuda", 1))
    findings = gpu.sharing(reasons, NVIDIA, has_nvml=True)
    assert [finding.topic for finding in findings] == ["MPS", "MIG", "other processes"]
    assert all(finding.state is State.REFUSED for finding in findings)
    assert all(finding.blocks and finding.fix for finding in findings)
    assert findings[0].found.endswith(f"its daemon left {pipe / 'control'}")
    own = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert findings[2].found == (
        f"other processes compute on this GPU: {os.getpid()} ({own}), {GONE}"
    )


def test_a_reason_without_a_topic_is_told_of_the_gpu() -> None:
    """A refusal that comes later is not lost."""
    first, *others = gpu.sharing(["the moon is full"], NVIDIA, has_nvml=True)
    assert (first.topic, first.found, first.blocks) == ("GPU", "the moon is full", True)
    assert len(others) == 3


def test_without_nvml_nobody_knows_who_else_computes() -> None:
    """MPS is told by its pipe; the rest is unknown, which is not the same as free."""
    unseen = (State.LIMITED, "cannot be seen without NVML")
    assert by_topic(gpu.sharing([], NVIDIA, has_nvml=False)) == {
        "MPS": (State.OK, "off"),
        "MIG": unseen,
        "other processes": unseen,
    }


@pytest.mark.parametrize("has_nvml", [False, True])
def test_on_rocm_nobody_knows_either(*, has_nvml: bool) -> None:
    """An NVML of another GPU in the machine says nothing of this one."""
    not_here = (State.NOT_APPLICABLE, "for NVIDIA GPUs")
    assert by_topic(gpu.sharing([], AMD, has_nvml=has_nvml)) == {
        "MPS": not_here,
        "MIG": not_here,
        "other processes": (State.LIMITED, "cannot be seen on ROCm"),
    }


@pytest.mark.parametrize(
    ("architecture", "built_for", "found"),
    [
        ("sm_90", ["sm_80", "sm_90", "sm_100"], "sm_90 runs on sm_90"),
        ("sm_89", ["sm_80", "sm_86", "sm_90"], "sm_86 runs on sm_89"),
        ("sm_121", ["sm_90", "sm_120f"], "sm_120f runs on sm_121"),
        (
            "sm_103",
            ["sm_90a", "compute_90"],
            "compute_90 runs on sm_103, compiled when it is first used",
        ),
        ("gfx942", ["gfx90a", "gfx942:sramecc+"], "gfx942:sramecc+ runs on gfx942"),
    ],
)
def test_kernels_of_torch_run_on_their_own_architecture_and_later_ones(
    architecture: str, built_for: list[str], found: str
) -> None:
    """Compiled ones within a major version, PTX on every later one."""
    assert gpu.kernels(architecture, built_for) == Finding(
        "torch kernels", State.OK, found
    )


@pytest.mark.parametrize(
    ("architecture", "built_for"),
    [
        ("sm_61", ["sm_75", "sm_80", "compute_120"]),
        ("sm_100", ["sm_90", "sm_90a", "sm_103"]),
        ("sm_91", ["sm_90a", "compute_90a"]),
        ("gfx1100", ["gfx90a", "gfx942"]),
    ],
)
def test_a_gpu_without_kernels_of_torch_blocks(
    architecture: str, built_for: list[str]
) -> None:
    """Everything else that is tried would fail by it, and be blamed on itself."""
    assert gpu.kernels(architecture, built_for) == Finding(
        "torch kernels",
        State.MISSING,
        f"for {', '.join(built_for)}: none runs on {architecture}",
        "no operator of torch runs on this GPU: no kernel image",
        f"install torch for {architecture} (see pytorch.org/get-started)",
        blocks=True,
    )


def test_a_torch_that_does_not_tell_its_kernels_blocks_nothing() -> None:
    """A build of one's own may not know."""
    told = gpu.kernels("sm_90", [])
    assert (told.state, told.blocks) == (State.LIMITED, False)


@pytest.mark.parametrize("value", ["", "0"])
def test_variables_that_are_off_change_nothing(value: str) -> None:
    """Set to nothing is not set."""
    told = gpu.variables({"CUDA_LAUNCH_BLOCKING": value, "HOME": "1"})
    assert told == Finding("variables", State.OK, "none that changes what is measured")


def test_variables_that_change_times_are_named_with_what_they_do() -> None:
    """And one command takes them all away."""
    told = gpu.variables({"NVIDIA_TF32_OVERRIDE": "1", "CUDA_LAUNCH_BLOCKING": "1"})
    assert told == Finding(
        "variables",
        State.LIMITED,
        "CUDA_LAUNCH_BLOCKING=1, NVIDIA_TF32_OVERRIDE=1",
        "every launch waits for its kernel; "
        "arithmetic is not the one that a backend asks for",
        "unset CUDA_LAUNCH_BLOCKING NVIDIA_TF32_OVERRIDE",
    )


def test_one_gpu_has_no_peers() -> None:
    """There is nobody whom it could not reach."""
    told = gpu.peers(1, lambda _a, _b: False)
    assert (told.state, told.found) == (State.NOT_APPLICABLE, "one GPU")


def test_peers_are_asked_both_ways() -> None:
    """Access can be missing one way only."""
    told = gpu.peers(3, lambda a, b: (a, b) != (2, 0))
    assert (told.state, told.found) == (
        State.LIMITED,
        "not from GPU to GPU: 2 → 0",
    )
    told = gpu.peers(2, lambda a, b: a != b)
    assert (told.state, told.found) == (State.OK, "each of 2 GPUs reaches every other")


def test_rocm_is_labelled_as_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of AMD is claimed to work."""
    built_for(monkeypatch, None, "7.0.5")
    told = gpu.rocm()
    assert told.state is State.LIMITED
    assert told.found == "7.0.5: torch captures graphs, torch.profiler records"
    assert "has not been run on an AMD GPU yet" in told.meaning
    built_for(monkeypatch, "13.0")
    assert gpu.rocm() == Finding("ROCm", State.NOT_APPLICABLE, "for AMD GPUs")
