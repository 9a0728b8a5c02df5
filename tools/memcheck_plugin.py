"""Lets the tests of kernels that are emulated run on the GPU, and counts launches.

A plugin of pytest, for ``tools/memcheck.py``: ``bench`` is the GPU, and tests that do
not ask for one are left out. The file that ``LAYERSCOPE_LAUNCHES`` names gets the
launches of every kernel, ``FILE NAME COUNT`` a line, and the exit status, when all is
over.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from backends.standard.tests.bench import Bench
from layerscope_standard.backend import make_workshop
from layerscope_standard.kernels import Enqueue, Launch
from layerscope_standard.launching import CudaLauncher

STATUS: Final = "status"

_counts: Final[Counter[tuple[str, str]]] = Counter()
_prepare: Final = CudaLauncher.prepare


def _counted(self: CudaLauncher, launch: Launch) -> Enqueue:
    kernel = launch.kernel
    if not all(arg.is_cuda for arg in launch.args if isinstance(arg, Tensor)):
        msg = f"{kernel.name} is given tensors that are not on the bench's device"
        raise TypeError(msg)
    enqueue = _prepare(self, launch)

    def count() -> None:
        _counts[kernel.file, kernel.name] += 1
        enqueue()

    return count


def gpu_bench() -> Bench:
    """The GPU, with stock launches."""
    device = torch.device("cuda", torch.cuda.current_device())
    return Bench(device, lambda: make_workshop(device, "stock"))


def pytest_configure() -> None:
    """Count what is launched."""
    CudaLauncher.prepare = _counted  # type: ignore[method-assign]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what has no bench."""
    is_kept = {item: "bench" in getattr(item, "fixturenames", ()) for item in items}
    config.hook.pytest_deselected(items=[one for one in items if not is_kept[one]])
    items[:] = [item for item in items if is_kept[item]]


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> object | None:
    """The GPU in place of what is emulated, and one cache for all."""
    if fixturedef.argname not in {"bench", "_caches_of_the_session"}:
        return None
    value = gpu_bench() if fixturedef.argname == "bench" else ()
    key = fixturedef.cache_key(request)  # type: ignore[arg-type]
    fixturedef.cached_result = (value, key, None)
    return value


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write what was launched."""
    lines = [f"{file} {name} {n}\n" for (file, name), n in sorted(_counts.items())]
    lines.append(f"{STATUS} {int(exitstatus)}\n")
    path = Path(os.environ["LAYERSCOPE_LAUNCHES"])
    path.write_text("".join(lines), encoding="utf-8")
