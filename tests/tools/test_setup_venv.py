import sys
from pathlib import Path

import pytest

from tools import setup_venv
from tools.setup_venv import SetupError, Torch


@pytest.mark.parametrize(
    ("torch", "usable_gpu", "wants_cupti"),
    [
        (Torch("2.11.0+cu130", "13.0", gpu=True), True, True),
        (Torch("2.11.0+cu130", "13.0", gpu=False), False, False),
        (Torch("2.9.1+cu128", "12.8", gpu=True), True, False),
        (Torch("2.10.0+rocm7.1", "", gpu=True), True, False),
        (Torch("2.8.0+cu129", "12.9", gpu=True), False, False),
        (Torch("2.13.0+cpu", "", gpu=False), False, False),
    ],
)
def test_torch_is_kept_where_it_can_measure(
    torch: Torch,
    usable_gpu: bool,  # noqa: FBT001 (expected value)
    wants_cupti: bool,  # noqa: FBT001 (expected value)
) -> None:
    """A torch counts if a GPU answers and it is new enough; CUPTI goes with CUDA 13."""
    assert torch.usable_gpu is usable_gpu
    assert torch.wants_cupti is wants_cupti


def test_constraints_spare_what_the_base_has() -> None:
    """Lines of packages that are there are left out, however the name is written."""
    lines = ["# why", "", "torch==2.13.0", "nvidia_cuda.cupti==13.0.85", "rich==15.0.0"]
    assert setup_venv.without(lines, {"torch", "nvidia-cuda-cupti"}) == [
        "# why",
        "",
        "rich==15.0.0",
    ]


def test_missing_ensurepip_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that cannot make environments is refused with what to install."""
    monkeypatch.setattr("tools.setup_venv.find_spec", lambda _: None)
    with pytest.raises(SetupError, match="apt install python3-venv"):
        setup_venv.create(tmp_path / "venv", keep_base=False)
    assert not (tmp_path / "venv").exists()


def test_every_backend_is_installed_beside_layerscope(tmp_path: Path) -> None:
    """Distributions below backends/ come with the checkout, in a stable order."""
    for name in ("second", "first", "not-a-distribution"):
        (tmp_path / "backends" / name).mkdir(parents=True)
    for name in ("second", "first"):
        (tmp_path / "backends" / name / "pyproject.toml").touch()
    assert setup_venv.editables(tmp_path, "profile") == [
        *("--editable", f"{tmp_path}[profile]"),
        *("--editable", f"{tmp_path}/backends/first"),
        *("--editable", f"{tmp_path}/backends/second"),
    ]


@pytest.mark.parametrize(
    ("extra", "cuda", "platform", "wanted"),
    [
        ("dev", "", "linux", True),
        ("profile", "", "linux", False),  # nothing could use them
        ("dev", "13.0", "linux", False),  # taken with the GPU, or not at all
        ("dev", "", "darwin", False),  # there are none
    ],
)
def test_developers_get_the_bindings_of_cuda_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    cuda: str,
    platform: str,
    *,
    wanted: bool,
) -> None:
    """Much of what is built on them is tested without one."""
    monkeypatch.setattr(sys, "platform", platform)
    torch = setup_venv.Torch("2.13.0", cuda, gpu=False)
    assert setup_venv.is_for_tests_alone(extra, torch) is wanted
