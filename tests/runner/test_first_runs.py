import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope.experiment import Experiment
from layerscope.runner import first_runs as module
from layerscope.runner.first_runs import (
    FirstRun,
    KnownRuns,
    Order,
    first_runs,
    getting_ready,
)
from tests.runner import first_run_recipes

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process finds the tests' own workloads."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(arm: str, *, without: str = "") -> FirstRun:
    """An edit that is named as its arm, so that recipes can tell what it does."""
    return FirstRun(arm=arm, experiment=Experiment(serial=arm, without=without))


def reasons(*runs: FirstRun, **how: str) -> list[str]:
    """Why each must not be measured."""
    found = first_runs(first_run_recipes.recipe(**how), runs, 4, "cpu")
    return [found[run] for run in runs]


def test_a_graph_with_the_results_of_the_captured_one_may_be_measured() -> None:
    """Also where a part of it was left out, whose results are still there."""
    right = run("right"), run("right", without="sum")
    assert reasons(*right, right="right") == ["", ""]


def test_a_graph_that_computes_nothing_is_refused() -> None:
    """What it should write was spoilt before."""
    assert reasons(run("idle"), idle="idle") == [
        "its results differ from those of the captured graph by inf, bound 0.001"
    ]


def test_a_graph_whose_kernels_give_up_waiting_is_refused() -> None:
    """Whatever its results are; what comes after it begins with none given up."""
    quitting, right = run("give up"), run("right")
    assert reasons(quitting, right, **{"give up": "give up", "right": "right"}) == [
        "its kernels gave up waiting",
        "",
    ]


def test_an_arm_that_gives_up_as_captured_is_not_taken_for_its_edited_graph() -> None:
    """It is the arm that must not be measured; the next begins with none given up."""
    quitting, right = run(first_run_recipes.QUITTING), run("right")
    assert reasons(quitting, right, quit="right", right="right") == [
        "its kernels gave up waiting as captured",
        "",
    ]


def test_a_region_may_be_left_out_where_its_results_stay() -> None:
    """Nothing is spoilt then: they are those of the run before."""
    assert reasons(run("idle", without="sum"), idle="idle") == [""]


def test_a_graph_that_hangs_is_ended_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a new process, for the old one may hold the device."""
    monkeypatch.setattr(module, "RUN_LIMIT_S", 0.5)
    found = reasons(run("hang"), run("right"), hang="hang", right="right")
    why = "its first run, in a process of its own, did not end within 0.5 s"
    assert found == [f"{why}; that process was ended", ""]


def test_a_graph_that_takes_its_process_down_is_refused() -> None:
    """With the status and what was said last, by whatever code; without the others."""
    found = reasons(run("right"), run("die"), right="right", die="die")
    why = "its first run ended its process with status 7"
    assert found == ["", f'{why}: {{"event": "ready"}}']


def test_an_error_of_the_code_is_told_as_it_ends_the_process() -> None:
    """With its last line, and without the others."""
    found = reasons(run("raise"), run("right"), **{"raise": "raise", "right": "right"})
    why = "its first run ended its process with status 1"
    assert found == [f"{why}: TypeError: not a failure of the device", ""]


def test_after_a_failure_of_the_device_the_others_run_in_a_new_process() -> None:
    """The old one can run nothing any more."""
    found = reasons(run("fail"), run("right"), fail="fail", right="right")
    assert found == ["RuntimeError: CUDA error: unspecified launch failure", ""]


def test_a_graph_that_cannot_be_edited_is_refused_with_the_reason() -> None:
    """It never began to run."""
    found = reasons(run("refuse"), run("right"), refuse="refuse", right="right")
    assert found == ["the graph cannot be instantiated", ""]


def test_an_arm_that_cannot_be_made_again_is_refused_with_the_reason() -> None:
    """The last line of what the process said."""
    asked = run("right")
    assert first_runs(first_run_recipes.BROKEN, [asked], 4, "cpu") == {
        asked: "the process for its first run could not make the arm: "
        "layerscope.errors.MeasurementError: no weights there"
    }


def test_nothing_is_started_for_nothing() -> None:
    """No run, no process."""
    assert first_runs(first_run_recipes.BROKEN, [], 4, "cpu") == {}


def test_what_ran_before_is_not_run_again() -> None:
    """Its reasons are told; what never ran must not be measured."""
    right, wrong, new = run("right"), run("wrong"), run("new")
    known = KnownRuns({right: "", wrong: "it hung"})
    assert first_runs(known, [wrong, right, new], 4, "cpu") == {
        wrong: "it hung",
        right: "",
        new: "it was not among the graphs that ran in a process of their own",
    }


def test_a_process_that_got_ready_ahead_has_run_what_is_asked() -> None:
    """What it refused is told, what it had no order for runs in a new one."""
    right, idle, new = run("right"), run("idle"), run("die")
    recipe = first_run_recipes.recipe(right="right", idle="idle", die="die")
    with getting_ready(is_wanted=True) as ahead:
        assert ahead is not None
        order = Order(recipe=recipe, runs=[right, idle], passes=4, device="cpu")
        ahead.send(order)
        found = first_runs(recipe, [idle, new], 4, "cpu", ahead)
        assert not ahead.is_running()
    assert [*found] == [idle, new]
    wrong = "its results differ from those of the captured graph by inf, bound 0.001"
    assert found[idle] == wrong
    assert found[new].startswith("its first run ended its process with status 7")


def test_a_graph_that_hangs_ahead_is_ended_while_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a GPU that others use, it must not hang until somebody asks."""
    monkeypatch.setattr(module, "RUN_LIMIT_S", 0.5)
    recipe = first_run_recipes.recipe(hang="hang")
    with getting_ready(is_wanted=True) as ahead:
        assert ahead is not None
        ahead.send(Order(recipe=recipe, runs=[run("hang")], passes=4, device="cpu"))
        wait_until(lambda: not ahead.is_running())
        (reason,) = ahead.reasons().values()
    assert "did not end within 0.5 s" in reason


def test_arms_that_cannot_be_made_ahead_are_tried_by_themselves() -> None:
    """Another arm, which is not measured in the end, may be the cause."""
    asked = run("right")
    broken = first_run_recipes.BROKEN
    with getting_ready(is_wanted=True) as ahead:
        assert ahead is not None
        ahead.send(Order(recipe=broken, runs=[asked], passes=4, device="cpu"))
        recipe = first_run_recipes.recipe(right="right")
        assert first_runs(recipe, [asked], 4, "cpu", ahead) == {asked: ""}


def test_a_process_that_got_ready_for_nothing_is_ended() -> None:
    """One that was never sent an order does not wait for ever."""
    with getting_ready(is_wanted=True) as ahead:
        assert ahead is not None
        assert ahead.is_running()
    assert not ahead.is_running()
    with getting_ready(is_wanted=False) as none:
        assert none is None


@pytest.mark.skipif(sys.platform != "linux", reason="the system offers it on Linux")
def test_a_graph_that_hangs_ends_with_the_process_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that is killed, and can end nothing itself."""
    hanging = tmp_path / "hanging"
    monkeypatch.setenv(first_run_recipes.HANGING, str(hanging))
    code = (
        "from tests.runner.test_first_runs import reasons, run, module;"
        "module.RUN_LIMIT_S = 60.0;"
        "reasons(run('hang'), hang='hang')"
    )
    waiting = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(lambda: hanging.is_file() and hanging.stat().st_size > 0)
    child = int(hanging.read_text(encoding="utf-8"))
    assert is_alive(child)
    waiting.kill()
    waiting.wait()
    wait_until(lambda: not is_alive(child))


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again and again, for a minute at most."""
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Whether a process runs, and is not only waiting to be looked at."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
