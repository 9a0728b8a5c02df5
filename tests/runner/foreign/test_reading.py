import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from layerscope.errors import InputError
from layerscope.runner.foreign.reading import read


def refusal(value: object) -> str:
    """The message with which `value` is refused as arguments."""
    with pytest.raises(InputError) as caught:
        read(value)
    return str(caught.value)


def again(*arguments: object) -> tuple[Tensor, ...]:
    """The tensors among the arguments, as copies of them are laid out."""
    layout, row = read(arguments)
    return layout.arguments(row).tensors


@st.composite
def views(draw: st.DrawFn) -> list[Tensor]:
    """Views of one or two blocks of memory: sliced, permuted, repeated, of any type."""
    blocks = [torch.arange(240.0), torch.arange(240.0).to(torch.bfloat16)]
    found = []
    for _ in range(draw(st.integers(1, 4))):
        block = draw(st.sampled_from(blocks))
        start = draw(st.integers(0, 30))
        cube = block[start : start + 120].view(4, 5, 6)
        cube = cube.permute(draw(st.permutations([0, 1, 2])))
        cut = cube[:: draw(st.integers(1, 2)), draw(st.integers(0, 3)) :]
        found.append(draw(st.sampled_from([cut, cut.expand(2, *cut.shape), cut[0]])))
    return found


@given(views())
def test_copies_are_laid_out_as_what_was_given(tensors: list[Tensor]) -> None:
    """Values, types, strides and alignment of every argument are kept."""
    for copy, tensor in zip(again(*tensors), tensors, strict=True):
        assert copy.equal(tensor)
        assert copy.dtype is tensor.dtype
        assert copy.stride() == tensor.stride()
        assert copy.data_ptr() % 16 == tensor.data_ptr() % 16


@given(views())
def test_what_shares_memory_shares_it_in_a_copy(tensors: list[Tensor]) -> None:
    """A write through one argument is seen through the others as it would have been."""
    copies = again(*tensors)
    for tensor, copy in zip(tensors, copies, strict=True):
        one = tuple(size - 1 for size in tensor.shape)
        tensor[one], copy[one] = -1.0, -1.0
        assert all(a.equal(b) for a, b in zip(copies, tensors, strict=True))


def test_copies_are_apart_from_what_was_given() -> None:
    """Nothing that a callable does reaches the user's tensors, nor the other way."""
    given = torch.zeros(4)
    (copy,) = again(given)
    copy.fill_(1.0)
    assert given.equal(torch.zeros(4))


def test_arguments_are_rebuilt_as_they_were_nested() -> None:
    """Tensors are replaced wherever they stand, all else is passed as it is."""
    thing = object()
    row = torch.arange(3)
    layout, memory = read({"a": (row, [None, 2.5]), "thing": thing})
    made = layout.arguments(memory)
    assert made.positional == ()
    assert made.keyword.keys() == {"a", "thing"}
    assert made.keyword["a"][0].equal(row)
    assert made.keyword["a"][1] == [None, 2.5]
    assert made.keyword["thing"] is thing
    assert layout.names == ["inputs['a'][0]"]


def test_arguments_are_told_in_words() -> None:
    """Types, shapes and unusual strides of tensors; values or types of all else."""
    matrix = torch.zeros(2, 3, dtype=torch.bfloat16)
    layout, _ = read([matrix, matrix.t(), 3, None, "x", object()])
    assert layout.described == (
        "bfloat16 [2, 3]",
        "bfloat16 [3, 2] strides [1, 3]",
        *("3", "None", "'x'", "object"),
    )
    layout, _ = read({"hidden": matrix, "rope": (matrix, matrix)})
    assert layout.described == (
        "hidden bfloat16 [2, 3]",
        "rope[0] bfloat16 [2, 3]",
        "rope[1] bfloat16 [2, 3]",
    )


def test_a_large_block_is_not_copied_for_two_slices_of_it() -> None:
    """Only what arguments reach is copied; what lies between them is not."""
    block = torch.zeros(1_000_000)
    _, row = read([block[:4], block[-8:]])
    assert [len(span) for span in row] == [16, 32]


def test_parameters_are_taken_as_the_values_they_hold() -> None:
    """A tensor that requires gradients can be an input."""
    (copy,) = again(nn.Parameter(torch.ones(2)))
    assert (type(copy), copy.requires_grad) == (Tensor, False)


def test_empty_tensors_are_tensors() -> None:
    """Arguments without elements keep their shapes."""
    (copy,) = again(torch.zeros(0, 3))
    assert copy.shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.zeros(2), "Tensor"),
        ("text", "str"),
        (3, "int"),
        ({1: 2}, "dict"),
        (iter(()), "tuple_iterator"),
    ],
)
def test_what_is_no_arguments_is_refused(value: object, kind: str) -> None:
    """A tensor alone would be taken apart row by row, so it is refused too."""
    assert refusal(value) == (
        f"inputs is of type {kind}; give a sequence of arguments, a mapping of keyword "
        "arguments, or a function of a step that makes either"
    )


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64).conj(),
        torch.zeros(2).as_subclass(type("Special", (Tensor,), {})),
    ],
    ids=["sparse", "lazy", "subclass"],
)
def test_tensors_that_are_more_than_memory_are_refused(tensor: Tensor) -> None:
    """What could not be copied as bytes is named."""
    assert refusal((1, tensor)) == (
        "inputs[1] is no plain strided tensor, so it cannot be copied as it is; let "
        "the callable hold it (functools.partial)"
    )


def test_inputs_on_several_devices_are_refused() -> None:
    """All devices are named."""
    both = [torch.zeros(1), torch.zeros(1, device="meta")]
    assert refusal(both) == (
        "inputs are on several devices: cpu, meta; move them to one"
    )
