from dataclasses import replace
from pathlib import Path

import pytest

from tools.memcheck_logs import Log, digest, errors, wrong_logs

KERNELS = {"norm": ("norm_rows", "add_norm_rows"), "draft": ("draft_token",)}
CLEAN = """\
========= COMPUTE-SANITIZER
40 passed in 9.13s
========= ERROR SUMMARY: 0 errors
"""
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at add_norm_rows+0x1f0
=========     by thread (3,0,0) in block (0,0,0)
=========     Access to 0x7f2a10 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x4d1] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at draft_token(void const *, int)+0x20 in draft.cu:7
=========     by thread (0,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at norm_rows+0x90
=========     and Read access at norm_rows+0xb0 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (CLEAN, {"norm": 0, "draft": 0}),
        (MEMCHECK, {"norm": 1, "draft": 1}),
        (RACECHECK, {"norm": 1, "draft": 0}),
    ],
    ids=["clean", "memcheck", "racecheck"],
)
def test_errors_are_counted_by_file(output: str, counts: dict[str, int]) -> None:
    """By the kernel in which each happened, however it is written."""
    assert errors(output, KERNELS) == counts


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("========= COMPUTE-SANITIZER\n", "the sanitizer did not come to its end"),
        (
            MEMCHECK.replace("at add_norm_rows+", "at some_other_kernel+"),
            "SUMMARY: 2 errors, not all of them in these kernels",
        ),
    ],
)
def test_what_cannot_be_told_is_no_clean_log(output: str, cause: str) -> None:
    """Neither a run that broke off nor an error of nobody's."""
    with pytest.raises(ValueError, match=cause):
        errors(output, KERNELS)


LOG = Log(
    source="0",
    kernels=("norm_rows", "add_norm_rows"),
    memcheck="0 errors",
    racecheck="0 errors",
    device="an H200, sm_90, driver 580.1",
    sanitizer="compute-sanitizer, Version 2025.3.1.0",
    command="python -m tools.memcheck standard",
)


def test_a_log_is_a_few_lines_that_can_be_read_again() -> None:
    """One fact a line."""
    assert str(LOG) == (
        "source: 0\n"
        "kernels: norm_rows, add_norm_rows\n"
        "memcheck: 0 errors\n"
        "racecheck: 0 errors\n"
        "device: an H200, sm_90, driver 580.1\n"
        "sanitizer: compute-sanitizer, Version 2025.3.1.0\n"
        "command: python -m tools.memcheck standard\n"
    )
    assert Log.parse(str(LOG)) == LOG
    with pytest.raises(TypeError):
        Log.parse("source: 0\n")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Kernels of a package, with a header of its own and one of another package."""
    for name, text in {
        "shared/turns.cuh": "// turns\n",
        "shared/unused.cuh": "// unused\n",
        "code/product.cuh": '#include "turns.cuh"\n// product\n',
        "code/norm.cu": '#include "product.cuh"\n// norm\n',
        "code/draft.cu": "// draft\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "code"


@pytest.mark.parametrize(
    ("changed", "is_other"),
    [
        ("code/norm.cu", True),
        ("code/product.cuh", True),
        ("shared/turns.cuh", True),
        ("shared/unused.cuh", False),
        ("code/draft.cu", False),
    ],
)
def test_a_digest_is_of_all_that_is_included(
    code: Path, changed: str, *, is_other: bool
) -> None:
    """And of nothing else: a log is not out of date without a reason."""
    shared = code.parent / "shared"
    before = digest(code / "norm.cu", shared)
    path = code.parent / changed
    path.write_text(path.read_text(encoding="utf-8") + "//\n", encoding="utf-8")
    assert (digest(code / "norm.cu", shared) != before) == is_other


def write(code: Path, name: str, log: Log) -> Path:
    """Keep the log of a file as it is now; the folder of logs."""
    folder, shared = code.parent / "memcheck", code.parent / "shared"
    folder.mkdir(exist_ok=True)
    log = replace(log, source=digest(code / f"{name}.cu", shared))
    (folder / f"{name}.log").write_text(str(log), encoding="utf-8")
    return folder


def wrong(code: Path) -> list[str]:
    """What is wrong with the logs beside `code`."""
    shared = code.parent / "shared"
    return wrong_logs(code.parent / "memcheck", code, KERNELS, shared)


def test_clean_logs_of_all_kernels_are_right(code: Path) -> None:
    """Where racecheck cannot run, it must be said why."""
    waits = "not run: its blocks wait for each other"
    draft = replace(LOG, kernels=("draft_token",), racecheck=waits)
    write(code, "norm", LOG)
    write(code, "draft", draft)
    assert wrong(code) == []


def test_every_fault_of_the_logs_is_told(code: Path) -> None:
    """Missing, out of date, not clean, incomplete, and of what there is no more."""
    folder = write(code, "norm", replace(LOG, kernels=("norm_rows",)))
    (folder / "gone.log").write_text(str(LOG), encoding="utf-8")
    (code / "norm.cu").write_text("// another\n", encoding="utf-8")
    assert wrong(code) == [
        "gone.log is of no file",
        "draft.cu has no log",
        "norm.cu has changed since its log",
        "norm.log lacks add_norm_rows",
    ]
    write(code, "norm", replace(LOG, memcheck="1 errors", racecheck="2 errors"))
    assert wrong(code)[2:] == [
        "norm.log: memcheck: 1 errors",
        "norm.log: racecheck: 2 errors",
    ]
    write(code, "norm", replace(LOG, memcheck="not run: no time"))
    assert wrong(code)[2:] == ["norm.log: memcheck: not run: no time"]


def test_a_file_that_nobody_registered_is_wrong(code: Path) -> None:
    """Its kernels would not be checked."""
    write(code, "norm", LOG)
    write(code, "draft", LOG)
    (code / "new.cu").write_text("", encoding="utf-8")
    write(code, "new", LOG)
    assert "new.log lacks its kernels: they are not registered" in wrong(code)
