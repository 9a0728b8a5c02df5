import torch
from hypothesis import given
from hypothesis import strategies as st

from layerscope.runner.foreign import arguments as module
from layerscope.runner.foreign.arguments import fingerprint
from layerscope.runner.foreign.reading import read


def test_what_torch_writes_is_known_though_no_value_changes() -> None:
    """Through the tensor, a view of it or another argument in the same span."""
    block = torch.zeros(8)
    layout, row = read([block[:4], block[2:6], torch.zeros(4), torch.zeros(4)])
    made = layout.arguments(row)
    assert layout.touched(made) == set()
    made.tensors[1].add_(0)
    assert layout.touched(made) == {0}
    made.tensors[2].view(2, 2)[1].zero_()
    assert layout.touched(made) == {0, 1}
    assert layout.names_in({0, 2}) == ["inputs[0]", "inputs[1]", "inputs[3]"]


def test_tensors_whose_writes_torch_does_not_count_are_no_error() -> None:
    """Those that a user makes in inference mode."""
    with torch.inference_mode():
        layout, row = read([torch.zeros(4)])
        made = layout.arguments([one.clone() for one in row])
        made.tensors[0].add_(1)
        assert layout.touched(made) == set()


def test_containers_are_made_anew_and_tensors_kept() -> None:
    """At any depth, empty ones too; whatever calls have put in them."""
    layout, row = read([[{"k": torch.ones(2)}, []], torch.ones(2)])
    first = layout.arguments(row)
    key, x = first.tensors
    (cache, seen), _ = first.positional
    cache["k"] = torch.zeros(3)
    seen.append(7)
    ((cache, seen), again) = layout.nested_anew(first).positional
    assert list(cache) == ["k"]
    assert cache["k"] is key
    assert seen == []
    assert again is x


def test_without_containers_nothing_is_made_anew() -> None:
    """It would be paid for in every replay on a CPU."""
    layout, row = read([torch.ones(2), None, 3])
    made = layout.arguments(row)
    assert layout.nested_anew(made) is made


@given(st.binary(min_size=64, max_size=64), st.integers(0, 63), st.integers(1, 255))
def test_another_byte_is_another_fingerprint(
    content: bytes, place: int, flipped: int
) -> None:
    """Wherever it is; the same bytes elsewhere in memory have the same one."""
    before = torch.tensor(list(content), dtype=torch.uint8)
    after = before.clone()
    assert fingerprint(after).equal(fingerprint(before))
    after[place] ^= flipped
    assert not fingerprint(after).equal(fingerprint(before))


def test_contents_of_one_sum_have_other_fingerprints() -> None:
    """Numbers that cancel, or change places, within a chunk and across chunks."""
    memory = torch.zeros(8 * (module._CHUNK_WORDS // 2 + 8), dtype=torch.uint8)
    numbers = memory.view(torch.float64)
    found = [fingerprint(memory)]
    for first, second in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        numbers.zero_()
        numbers[first], numbers[second] = 2.0, -2.0
        found.append(fingerprint(memory))
    assert [tuple(each.shape) for each in found] == [(2,)] * 5
    assert len({tuple(each.tolist()) for each in found}) == 5


def test_memory_without_bytes_has_a_fingerprint() -> None:
    """An argument may be empty."""
    assert fingerprint(torch.zeros(0, dtype=torch.uint8)).tolist() == [0]
