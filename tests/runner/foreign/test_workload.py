from collections.abc import Callable
from functools import partial
from math import inf

import pytest
import torch
from torch import Tensor, nn

from layerscope.errors import BackendError
from layerscope.layers.feed import advance, restart
from layerscope.progress import SilentProgress
from layerscope.regions import Mark, observing
from layerscope.runner.foreign.arguments import Given
from layerscope.runner.foreign.arms import Functions, arms_of
from layerscope.runner.foreign.first_calls import FirstCalls
from layerscope.runner.foreign.inputs import draw
from layerscope.runner.foreign.workload import ForeignWorkload, is_played
from layerscope.study import AA_SUFFIX

CPU = torch.device("cpu")
PASSES = 3


def workload(
    arms: dict[str, Functions], inputs: Given | Callable[[int], Given]
) -> ForeignWorkload:
    """The workload after the first calls, as a run makes it."""
    made = arms_of(arms, {})
    calls = FirstCalls(made, draw(inputs), CPU)
    with torch.no_grad():
        tolerance = calls.run(SilentProgress())
    settled = calls.drawn.settled(calls.written, CPU)
    return ForeignWorkload(settled, made, tolerance, frozenset(calls.kept))


def replay(work: ForeignWorkload, arm: str, step: int = 0) -> float:
    """Play a replay of `arm` at `step` as a bench would; its error."""
    restart(work.feed, hold=1, step=step)
    work.poison()
    advance(work.feed)
    with torch.no_grad():
        for index in range(PASSES):
            work.run_pass(arm, index, PASSES)
        (checked,) = work.checked(PASSES)
        return work.error(arm, checked, PASSES)


def step_inputs(step: int) -> list[Tensor]:
    """Another vector at every step."""
    return [torch.arange(4.0) + step]


def test_right_arms_have_no_error() -> None:
    """At any step, also as the A/A arm."""
    work = workload({"base": torch.sin, "same": torch.sin}, step_inputs)
    for step in (0, 7, 31):
        for arm in ("base", "same", f"base{AA_SUFFIX}"):
            assert replay(work, arm, step) == 0.0


def test_changes_of_arguments_carry_through_a_replay() -> None:
    """The base is called as often, and every replay begins with what was given."""
    work = workload({"base": lambda x: x.mul_(2)}, step_inputs)
    for _ in range(2):
        assert replay(work, "base", step=1) == 0.0
        assert work.inputs.live.tensors[0].tolist() == [8.0, 16.0, 24.0, 32.0]


def test_an_arm_that_leaves_out_later_passes_is_wrong() -> None:
    """A cache that is written in the first pass only differs after the last."""
    calls: list[int] = []

    def update(x: Tensor, cache: Tensor) -> Tensor:
        return cache.add_(x).sum()

    def lazy(x: Tensor, cache: Tensor) -> Tensor:
        calls.append(0)
        added = cache if len(calls) > 3 else cache.add_(x)
        return added.sum()

    inputs = [torch.ones(2), torch.zeros(2)]
    work = workload({"base": update, "lazy": lazy}, inputs)
    assert replay(work, "base") == 0.0
    assert replay(work, "lazy") == pytest.approx(2 / 3)


def test_memory_that_arms_share_does_not_hide_an_error() -> None:
    """The result is kept before the base writes its own to the same place."""
    out, calls = torch.zeros(4), [0]

    def late(x: Tensor) -> Tensor:
        calls[0] += 1
        return out.copy_(x if calls[0] <= 4 else x * 2)

    work = workload({"base": out.copy_, "late": late}, step_inputs)
    assert replay(work, "late", step=1) == pytest.approx(1.0)


def test_an_arm_that_stops_writing_is_wrong() -> None:
    """Its result was spoilt, though every replay computes on the same inputs."""
    out, calls = torch.zeros(4), [0]

    def stops(x: Tensor) -> Tensor:
        calls[0] += 1
        return out.copy_(x) if calls[0] <= 6 else out

    work = workload({"base": torch.clone, "stops": stops}, [torch.ones(4)])
    assert replay(work, "stops") == 0.0
    assert replay(work, "stops") == inf


def test_only_results_are_spoilt() -> None:
    """Not what arms return but also read, nor arguments that nobody loads again."""
    weight, out = torch.ones(4), torch.zeros(4)

    def scale(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return out.copy_(x * weight), weight, y, x

    work = workload({"base": scale}, lambda step: (torch.ones(4) + step, torch.ones(4)))
    assert replay(work, "base") == 0.0
    assert not out.isnan().any()
    work.poison()
    x, y = work.inputs.live.tensors
    assert out.isnan().all()
    assert x.isnan().all()  # loaded again at the head
    assert y.equal(torch.ones(4))
    assert weight.equal(torch.ones(4))


def test_integers_are_spoilt_too() -> None:
    """A choice of experts that is not made anew is found."""
    out, calls = torch.zeros((), dtype=torch.int64), [0]

    def stops(x: Tensor) -> Tensor:
        calls[0] += 1
        return out.copy_(x.argmax()) if calls[0] <= 3 else out

    work = workload({"base": torch.argmax, "stops": stops}, [torch.arange(4.0)])
    assert replay(work, "base") == 0.0
    assert replay(work, "stops") == 0.0
    assert replay(work, "stops") == inf


def test_other_results_than_at_first_are_refused() -> None:
    """An arm that returns another shape under capture is named."""
    calls = [0]

    def changes(x: Tensor) -> Tensor:
        calls[0] += 1
        return x.clone() if calls[0] <= 3 else x[1:].clone()

    work = workload({"base": torch.clone, "changes": changes}, step_inputs)
    with pytest.raises(BackendError) as caught:
        replay(work, "changes")
    assert str(caught.value) == (
        "changes returns float32 [3], base float32 [4]; they must be of one kind"
    )


def test_an_argument_that_a_first_call_leaves_by_chance_is_checked() -> None:
    """What step 0 adds nothing to begins anew at every replay, and must be right."""

    def accumulate(x: Tensor, state: Tensor) -> Tensor:
        state += x
        return x * 2

    work = workload(
        {"base": accumulate, "same": accumulate},
        lambda step: (torch.full((4,), float(step)), torch.zeros(4)),
    )
    assert work.inputs.written == {1}
    for step in (0, 3):
        assert replay(work, "base", step) == replay(work, "same", step) == 0.0
        assert work.inputs.live.tensors[1].tolist() == [3.0 * step] * 4


def test_an_argument_that_only_a_replay_changes_is_refused() -> None:
    """Nothing restores it, so the arm and the argument are named."""
    is_late = [False]

    def late(x: Tensor, table: Tensor) -> Tensor:
        if is_late[0]:
            table[0] = 7.0
        return x + 1

    arms: dict[str, Functions] = {"base": lambda x, _: x + 1, "late": late}
    work = workload(arms, lambda step: (torch.ones(4) + step, torch.zeros(4)))
    assert replay(work, "late") == 0.0
    is_late[0] = True
    with pytest.raises(BackendError) as caught:
        replay(work, "late", step=5)
    assert str(caught.value) == (
        "late changed inputs[1] in a replay of step 5 but in no first call, so later "
        "replays would begin with it; let it change at the first step too"
    )
    with pytest.raises(BackendError, match=r"^an arm changed inputs\[1\] between two "):
        replay(work, "base")


def test_replays_begin_with_the_containers_as_they_were_given() -> None:
    """A cache that grows from pass to pass is short again in the next replay."""
    lengths: list[int] = []

    def grow(x: Tensor, cache: dict[str, Tensor], seen: list[Tensor]) -> Tensor:
        lengths.append(len(seen))
        seen.append(x)
        cache["k"] = torch.cat([cache["k"], x])
        return cache["k"].cumsum(0)

    work = workload(
        {"base": grow, "same": grow},
        lambda step: (torch.ones(2) + step, {"k": torch.zeros(1)}, []),
    )
    lengths.clear()
    for step in (0, 7):
        assert replay(work, "base", step) == replay(work, "same", step) == 0.0
    # Two arms at two steps, and the base again to compare with each.
    assert lengths == [0, 1, 2] * 8


def test_calls_that_only_warm_do_not_replace_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's player runs one pass before every capture, of whatever length."""
    is_capturing = [False]
    played = "layerscope.runner.foreign.workload.is_played"
    monkeypatch.setattr(played, lambda _: is_capturing[0])
    work = workload({"base": torch.clone}, [torch.ones(4)])

    def capture(passes: int) -> None:
        is_capturing[0] = False
        work.run_pass("base", 0, 1)
        is_capturing[0] = True
        for index in range(passes):
            work.run_pass("base", index, passes)

    capture(1)
    captured = work._results["base", 1]
    capture(2)
    assert work._results["base", 1] is captured
    assert set(work._results) == {("base", 1), ("base", 2)}


def test_on_a_gpu_only_captured_calls_are_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a CPU every call is."""
    for is_capturing in (False, True):
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda now=is_capturing: now
        )
        assert is_played(torch.device("cuda", 0)) is is_capturing
        assert is_played(CPU)


def test_functions_take_turns() -> None:
    """Pass k calls the k-th function; after the last comes the first."""
    work = workload({"base": [torch.sin, torch.cos]}, step_inputs)
    assert replay(work, "base") == 0.0
    (result,) = work._results["base", PASSES]
    assert result.equal(torch.arange(4.0).sin())


def test_calls_are_marked_as_other_unless_they_mark_themselves() -> None:
    """Hooks are there while somebody observes, and never else."""
    seen: list[tuple[str, str]] = []
    hooks: list[int] = []
    module = nn.Sequential(nn.Identity())

    class Observer:
        def opened(self, mark: Mark) -> None:
            seen.append((mark.kind, mark.name))

        def closed(self, mark: Mark) -> None:
            del mark

    module.register_forward_pre_hook(
        lambda *_: hooks.append(len(module[0]._forward_hooks))
    )
    arms = arms_of({"base": module}, {"inner": ["0"]})
    work = ForeignWorkload(draw([torch.ones(1)]).settled(set(), CPU), arms, 0.0)
    work.run_pass("base", 0, 1)
    with observing(Observer()):
        work.run_pass("base", 0, 1)
    assert hooks == [0, 1]
    assert seen == [("region", "other"), ("region", "inner")]


def test_weights_are_counted_once() -> None:
    """By the memory they lie in; of the modules that a replay calls."""
    shared = nn.Linear(8, 8, bias=False)
    other = nn.Linear(8, 8)
    arms = arms_of({"m": [shared, shared, other], "f": [shared, torch.sin]}, {})
    assert arms["m"].weight_bytes(2) == 256
    assert arms["m"].weight_bytes(3) == 256 + 256 + 32
    assert arms["f"].weight_bytes(1) == 256
    assert arms["f"].weight_bytes(2) is None


def test_what_a_method_of_a_module_reads_is_not_known() -> None:
    """It may be a small part of what the module holds."""
    module_ = nn.Linear(8, 8)
    arms = arms_of({"method": module_.forward, "part": partial(module_)}, {})
    assert arms["method"].weight_bytes(1) is None
    assert arms["part"].weight_bytes(1) is None


def test_warm_caches_are_warned_of() -> None:
    """Of weights that fit, and of what is not known; on a CPU, of nothing."""
    arms = arms_of({"module": nn.Linear(8, 8, bias=False), "f": torch.sin}, {})
    inputs = draw([torch.ones(8)]).settled(set(), CPU)
    work = ForeignWorkload(inputs, arms, 0.0)
    assert list(work.cache_warnings(8, 0)) == []
    assert list(work.cache_warnings(8, 1_000_000)) == [
        (
            "the modules of module hold 0 MB, less than 5 times the L2 cache of 1 MB: "
            "weights may be read from it; give a list of modules, one a pass"
        ),
        (
            "what f reads is not known: if a replay of 8 calls reads less than 5 times "
            "the L2 cache of 1 MB, its times are of a warm cache"
        ),
    ]
    assert len(list(work.cache_warnings(8, 51))) == 1


def test_what_is_not_known_of_foreign_code_is_not_told() -> None:
    """Neither the bytes of regions nor those required; the bound is one for all."""
    work = workload({"base": torch.sin, "other": torch.sin}, step_inputs)
    assert list(work.region_bytes()) == []
    assert work.error_name == "relative error against base"
    assert work.bound("base") == work.bound("other") == 1e-4
