import os

import pytest
import torch

from layerscope.doctor import cpu
from layerscope.environment import DeviceFacts
from layerscope.report.diagnosis import Finding, State

PAPER = DeviceFacts(
    type="cpu", name="Paper CPU", processors=4, memory_bytes=16_000_000_000
)


def test_a_core_is_left_to_the_system() -> None:
    """Threads that measure are fewer than cores."""
    assert cpu.processor(PAPER, cores=4, measuring=3) == Finding(
        "CPU", State.OK, "Paper CPU, 3 of 4 cores measure, 16.00 GB free"
    )


@pytest.mark.parametrize(
    ("cores", "fix"),
    [(4, "export OMP_NUM_THREADS=3"), (1, "take a larger machine")],
)
def test_a_cpu_without_a_core_to_spare_is_a_limit(cores: int, fix: str) -> None:
    """OMP_NUM_THREADS may take all cores, and one core is taken whole."""
    told = cpu.processor(PAPER, cores=cores, measuring=cores)
    assert (told.state, told.fix) == (State.LIMITED, fix)


@pytest.mark.parametrize(
    ("average", "state"), [(0.0, State.OK), (1.0, State.OK), (1.1, State.LIMITED)]
)
def test_others_may_use_the_cores_that_do_not_measure(
    average: float, state: State
) -> None:
    """Three of four cores measure, so one busy thread of others has room."""
    told = cpu.load(average, cores=4, measuring=3)
    assert told.state is state
    assert told.found.startswith(f"{average} threads were busy in the last minute")


def test_the_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores are those of this process; the load is that of the last minute."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 9.0, 9.0))
    threads = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert cpu.findings(PAPER) == (cpu.processor(PAPER, 4, 3), cpu.load(0.5, 4, 3))
