from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda extra is not installed")

from backends.standard.tests.emulation import KERNELS
from layerscope.errors import BackendError
from layerscope_standard import compiling
from layerscope_standard.compiling import (
    ARCHITECTURES,
    FILES,
    HEADERS,
    STAMP_HEADERS,
)
from layerscope_standard.kernels import Kernel

Defines = tuple[tuple[str, int], ...]


def attention(dim: int, tokens: int, group: int, stages: int) -> Defines:
    """The macros of attention, for pages of 16 tokens."""
    return (
        ("HEAD_DIM", dim),
        ("TOKENS", tokens),
        ("GROUP", group),
        ("MATRIX_ROWS", -(-tokens * group // 16) * 16),
        ("PAGE_SIZE", 16),
        ("STAGES", stages),
    )


USUAL: Final[dict[str, Defines]] = {
    "product": (("TILES", 1), ("DEPTH", 4)),
    "norm": (),
    "rope": (("HEAD_DIM", 128),),
    "attention": attention(128, 6, 8, 1),
    "combine": (("HEAD_DIM", 128),),
    "routing": (("LANE_EXPERTS", 4), ("SPLITS", 4), ("MOST_PAIRS", 64)),
    "experts": (("TILES", 1),),
    "draft": (("RANK", 256),),
}
UNUSUAL: Final[tuple[tuple[str, Defines], ...]] = (
    ("product", (("TILES", 2), ("DEPTH", 8))),
    ("product", (("TILES", 1), ("DEPTH", 4), ("TRIGGER", 1), ("LOADS_EARLY", 1))),
    ("norm", (("TRIGGER", 1), ("LOADS_EARLY", 1))),
    ("rope", (("HEAD_DIM", 128), ("TRIGGER", 1), ("LOADS_EARLY", 1))),
    ("experts", (("TILES", 2),)),
    ("experts", (("TILES", 4), ("UP_DEPTH", 2))),
    ("experts", (("TILES", 1), ("RUNS_ON", 1), ("DOWN_DEPTH", 2))),
    ("experts", (("TILES", 1), ("RUNS_ON", 1), ("DOWN_DEPTH", 4))),
    ("experts", (("TILES", 1), ("RUNS_ON", 1), ("TRIGGER", 1), ("LOADS_EARLY", 1))),
    ("rope", (("HEAD_DIM", 64),)),
    ("rope", (("HEAD_DIM", 256),)),
    ("attention", attention(64, 1, 3, 3)),
    ("attention", attention(256, 8, 16, 2)),
    ("attention", (*attention(128, 6, 8, 3), ("LOADS_EARLY", 1))),
    ("combine", (("HEAD_DIM", 64),)),
    ("combine", (("HEAD_DIM", 256),)),
    ("routing", (("LANE_EXPERTS", 16), ("SPLITS", 7), ("MOST_PAIRS", 256))),
    ("draft", (("RANK", 64),)),
)


def kernel(file: str, defines: Defines) -> Kernel:
    """The first kernel of a file."""
    return Kernel(file, KERNELS[file][0], 32, defines)


def test_every_file_is_known() -> None:
    """What compiles here is all there is."""
    folder = Path(compiling.__file__).parent / "code"
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {*HEADERS, *STAMP_HEADERS, *(f"{name}.cu" for name in FILES)}
    assert set(FILES) == USUAL.keys() == KERNELS.keys()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_every_kernel_compiles(file: str, architecture: str) -> None:
    """For every architecture that the backend names, without a GPU."""
    image = compiling.cubin(kernel(file, USUAL[file]), architecture)
    assert image.startswith(b"\x7fELF")
    assert all(name.encode() in image for name in KERNELS[file])


@pytest.mark.parametrize(("file", "defines"), UNUSUAL)
def test_unusual_sizes_compile(file: str, defines: Defines) -> None:
    """The ends of what the limits allow."""
    image = compiling.cubin(kernel(file, defines), "sm_90")
    assert image.startswith(b"\x7fELF")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_stamped_kernels_compile(architecture: str) -> None:
    """With a place for the stamps of every block, which others have not."""
    plain = kernel("combine", USUAL["combine"])
    stamped = replace(plain, stamps=("combine", 1000))
    assert b"stamps" not in compiling.cubin(plain, architecture)
    assert b"stamps" in compiling.cubin(stamped, architecture)


def test_machine_code_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second time nothing is compiled; other macros are another file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    combine = kernel("combine", USUAL["combine"])
    image = compiling.cubin(combine, "sm_90")
    (kept,) = (tmp_path / "layerscope" / "cubins").iterdir()
    assert kept.read_bytes() == image
    with monkeypatch.context() as patch:
        patch.delattr(compiling, "_compiled")
        assert compiling.cubin(combine, "sm_90") == image
    compiling.cubin(kernel("combine", (("HEAD_DIM", 64),)), "sm_90")
    assert len(list(kept.parent.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel is compiled all the same."""
    occupied = tmp_path / "file"
    occupied.write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    image = compiling.cubin(kernel("combine", USUAL["combine"]), "sm_90")
    assert image.startswith(b"\x7fELF")


def test_what_does_not_compile_is_one_line() -> None:
    """Names the file and the compiler's first error."""
    with pytest.raises(BackendError) as caught:
        compiling.cubin(kernel("combine", ()), "sm_90")
    line = str(caught.value)
    assert line.startswith("standard: combine.cu does not compile: combine.cu(")
    assert 'identifier "HEAD_DIM" is undefined' in line
    assert "\n" not in line
