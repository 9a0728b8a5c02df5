import pytest
import torch
from torch import Tensor

from layerscope.layers.feed import Feed, Pool, advance, make_feed, restart

CPU = torch.device("cpu")


def words_and_flags() -> tuple[Feed, Tensor, Tensor]:
    """A feed of three steps with two pools of odd sizes, and its two targets."""
    words = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]], dtype=torch.int8)
    flags = torch.tensor([0.0, 1.0, 2.0], dtype=torch.bfloat16)
    targets = words[0].clone(), flags[0].clone()
    pools = (Pool(words, targets[0]), Pool(flags, targets[1]))
    return make_feed(3, pools, CPU), *targets


def advanced(feed: Feed, replays: int) -> list[tuple[int, int]]:
    """The count and the step of each of so many replays."""
    counts = []
    for _ in range(replays):
        advance(feed)
        counts.append((int(feed.launches), int(feed.step)))
    return counts


def test_a_new_feed_has_step_0_loaded() -> None:
    """The first replay after it runs step 1."""
    feed, _, _ = words_and_flags()
    assert (int(feed.launches), int(feed.step), int(feed.hold)) == (0, 0, 1)
    assert feed.device == CPU
    assert advanced(feed, 1) == [(1, 1)]


def test_every_pool_is_at_the_same_step_and_wraps() -> None:
    """Each replay loads the next input of all pools in place; after the last, 0."""
    feed, words, flags = words_and_flags()
    places = words.data_ptr(), flags.data_ptr()
    loaded = []
    for _ in range(5):
        advance(feed)
        loaded.append((words.tolist(), float(flags)))
    assert loaded == [
        ([20, 21, 22], 1.0),
        ([30, 31, 32], 2.0),
        ([10, 11, 12], 0.0),
        ([20, 21, 22], 1.0),
        ([30, 31, 32], 2.0),
    ]
    assert places == (words.data_ptr(), flags.data_ptr())


def test_held_replays_share_a_step() -> None:
    """With a hold of two each step runs twice; the count goes on over the end."""
    feed, words, _ = words_and_flags()
    restart(feed, hold=2)
    assert advanced(feed, 7) == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 0)]
    assert words.tolist() == [10, 11, 12]


def test_a_restart_loads_nothing_itself() -> None:
    """The next replay runs the step asked for; until then the old input stays."""
    feed, words, _ = words_and_flags()
    restart(feed, hold=3, step=2)
    assert (words.tolist(), int(feed.step)) == ([10, 11, 12], 0)
    assert advanced(feed, 4) == [(6, 2), (7, 2), (8, 2), (9, 0)]
    restart(feed, hold=1, step=1)
    assert advanced(feed, 2) == [(1, 1), (2, 2)]


def test_a_feed_without_pools_counts() -> None:
    """Where inputs never change, replays are counted all the same."""
    feed = make_feed(2, (), CPU)
    restart(feed, hold=1)
    assert advanced(feed, 3) == [(0, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    ("rows", "target"),
    [
        (torch.zeros(3, 4), torch.zeros(5)),
        (torch.zeros(3, 4), torch.zeros(2, 2)),
        (torch.zeros(3, 4), torch.zeros(4, dtype=torch.float64)),
        (torch.zeros(4, 3).T, torch.zeros(4)),
        (torch.zeros(3, 2, 4), torch.zeros(4, 2).T),
    ],
)
def test_a_target_must_be_laid_out_as_its_inputs(rows: Tensor, target: Tensor) -> None:
    """Shape, type and order must agree: kernels copy inputs as bytes."""
    with pytest.raises(ValueError, match="cannot be loaded into"):
        Pool(rows, target)


@pytest.mark.parametrize("length", [2, 4])
def test_every_step_needs_its_input(length: int) -> None:
    """A pool that is too short would be read past its end, a longer one not used up."""
    pool = Pool(torch.zeros(length, 4), torch.zeros(4))
    with pytest.raises(ValueError, match=rf"\[{length}\] inputs, .* of 3 steps"):
        make_feed(3, (pool,), CPU)
