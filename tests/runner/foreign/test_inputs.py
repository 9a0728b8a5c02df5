import pytest
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.feed import advance, restart
from layerscope.runner.foreign import inputs as module
from layerscope.runner.foreign.inputs import STEPS, draw

CPU = torch.device("cpu")


def refusal(function: object) -> str:
    """The message with which a function of the step is refused."""
    with pytest.raises(InputError) as caught:
        draw(function)  # type: ignore[arg-type]
    return str(caught.value)


def test_inputs_that_are_given_once_are_one_step() -> None:
    """Without a function of the step there is nothing to load, but what is written."""
    drawn = draw([torch.ones(3)])
    inputs = drawn.settled(set(), CPU)
    assert (inputs.feed.steps, inputs.feed.pools) == (1, ())
    assert inputs.fixed == {0}
    assert inputs.live.positional[0].equal(torch.ones(3))


def test_every_step_is_loaded_in_turn() -> None:
    """After the last step comes the first; what the step before left is gone."""
    drawn = draw(lambda step: (torch.full((3,), float(step)).t(), 7))
    inputs = drawn.settled({0}, CPU)
    (live, constant) = inputs.live.positional
    assert (inputs.feed.steps, constant) == (STEPS, 7)
    restart(inputs.feed, hold=1)
    for step in [*range(STEPS), 0]:
        advance(inputs.feed)
        assert live.equal(torch.full((3,), float(step)))
        live.fill_(-1.0)
        assert inputs.before(step)[0].equal(torch.full((3,), float(step)))
        assert inputs.fresh(step).tensors[0].equal(torch.full((3,), float(step)))


def test_what_never_changes_is_kept_once() -> None:
    """Weights and caches among the inputs are not copied for every step."""
    weight, cache = torch.ones(100), torch.zeros(100)
    drawn = draw(lambda step: (torch.full((4,), step), weight.clone(), cache))
    inputs = drawn.settled({2}, CPU)
    assert [tuple(pool.rows.shape) for pool in inputs.feed.pools] == [
        (STEPS, 32),
        (STEPS, 400),
    ]
    assert inputs.written == {2}
    assert inputs.fixed == {1}
    fresh = inputs.fresh(5)
    assert fresh.tensors[1].data_ptr() == inputs.live.tensors[1].data_ptr()
    assert fresh.tensors[2].data_ptr() != inputs.live.tensors[2].data_ptr()


def test_a_function_may_use_its_tensors_again() -> None:
    """What a step gives is copied before the next is asked for."""
    buffer = torch.zeros(2)

    def fill(step: int) -> list[Tensor]:
        return [buffer.fill_(float(step))]

    rows = [row[0].view(torch.float32).tolist()[0] for row in draw(fill).rows]
    assert rows == list(map(float, range(STEPS)))


def test_a_function_that_gives_the_same_at_every_step_is_one_step() -> None:
    """Replays are then told to compute on the same values."""
    assert draw(lambda _: [torch.ones(1)]).settled({0}, CPU).feed.steps == 1


def test_what_should_never_change_is_watched() -> None:
    """By name, if it does; what is loaded may hold anything."""
    block = torch.zeros(8)
    drawn = draw(lambda step: {"x": torch.ones(2) * step, "w": [block, block[2:]]})
    inputs = drawn.settled(set(), CPU)
    x, whole, _ = inputs.live.tensors
    x.fill_(9.0)
    assert inputs.changed() == []
    whole[3] = 1.0
    assert inputs.changed() == ["inputs['w'][0]", "inputs['w'][1]"]


def test_the_first_step_and_the_last_other_one_are_tried() -> None:
    """One is enough where all are the same."""
    assert draw([torch.ones(2)]).tried == (0,)
    assert draw(lambda _: [torch.ones(2)]).tried == (0,)
    assert draw(lambda step: [torch.full((2,), step)]).tried == (0, 31)
    drawn = draw(lambda step: [torch.full((2,), step % 31)])
    assert drawn.tried == (0, 30)
    assert drawn.fresh(30).tensors[0].tolist() == [30, 30]
    assert drawn.before(30)[0].tolist() == [30, 30]


def test_what_a_call_has_written_is_known() -> None:
    """By its bytes, for a kernel tells nobody, or by torch's own count.

    A NaN that stays is no change.
    """
    drawn = draw([torch.full((2,), torch.nan), torch.zeros(2), torch.zeros(2)])
    arguments = drawn.fresh()
    assert drawn.written(arguments) == set()
    arguments.tensors[1].numpy()[1] = 1.0
    assert drawn.written(arguments) == {1}
    arguments.tensors[2].zero_()
    assert drawn.written(arguments) == {1, 2}
    left = drawn.left(arguments, {1})
    assert left[1].tolist() == [0.0, 1.0]
    assert left[0].data_ptr() == drawn.before()[0].data_ptr()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda step: [torch.zeros(2 + step)],
            "inputs[0] is float32 [2] at step 0, and float32 [3] at step 1",
        ),
        (
            lambda step: [torch.eye(2) if step < 2 else torch.eye(2).t()],
            (
                "inputs[0] is float32 [2, 2] at step 0, and float32 [2, 2] strides "
                "[1, 2] at step 2"
            ),
        ),
        (
            lambda step: {"scale": float(step)},
            "inputs['scale'] is 0.0 at step 0, and 1.0 at step 1",
        ),
        (
            lambda _: [object()],
            "inputs[0] is another object at step 1",
        ),
        (
            lambda step: [torch.zeros(40)[step : step + 2]],
            "inputs[0] (float32 [2]) lies otherwise in memory at step 1",
        ),
    ],
)
def test_only_values_of_tensors_may_change(function: object, message: str) -> None:
    """A captured graph has all else in it; what differs is named, with its step."""
    assert refusal(function) == (
        f"{message}; only the values of tensors may change between steps"
    )


def test_nesting_may_not_change() -> None:
    """Other arguments at another step are refused."""
    assert refusal(lambda step: [None] * (1 + step)) == (
        "inputs are nested otherwise at step 1 than at step 0"
    )


def test_steps_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are allocated, with what is needed and what is free."""
    monkeypatch.setattr(module, "free_bytes", lambda _: 1000)
    drawn = draw(lambda step: [torch.full((16,), float(step))])
    with pytest.raises(InputError) as caught:
        drawn.settled(set(), CPU)
    assert str(caught.value) == (
        "inputs that change or are written need 2.048 kB for their steps, and 1.000 kB "
        "are free; give them as a sequence, which is one step, instead of a function"
    )
