from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from layerscope import regions
from layerscope.errors import BackendError, InputError, LayerscopeError
from layerscope.progress import SilentProgress
from layerscope.runner.foreign.arguments import Given
from layerscope.runner.foreign.arms import Functions, arms_of, patterns_of
from layerscope.runner.foreign.first_calls import FirstCalls
from layerscope.runner.foreign.inputs import draw

X = torch.arange(1.0, 7.0).view(2, 3)
W = torch.eye(3)


def calls(
    arms: dict[str, Functions],
    inputs: Given | Callable[[int], Given] = (X,),
    tolerance: float | None = None,
    patterns: dict[str, str] | None = None,
) -> FirstCalls:
    """All first calls of `arms`, the first of which is the base."""
    found = arms_of(arms, patterns_of(patterns or {}))
    made = FirstCalls(found, draw(inputs), torch.device("cpu"), tolerance)
    with torch.no_grad():
        made.run(SilentProgress())
    return made


def refusal(
    kind: type[LayerscopeError],
    arms: dict[str, Functions],
    inputs: Given | Callable[[int], Given] = (X,),
) -> str:
    """The message with which the first calls end."""
    with pytest.raises(kind) as caught:
        calls(arms, inputs)
    return str(caught.value)


def double(x: Tensor) -> Tensor:
    """Twice what `plain` gives."""
    return x @ W * 2


def nothing(*_: Tensor) -> None:
    """Return no tensor, and change no argument."""


def plain(x: Tensor) -> Tensor:
    """What most of these arms should give."""
    return x @ W


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-10),
        (torch.float32, 1e-4),
        (torch.float16, 2e-3),
        (torch.bfloat16, 1e-2),
        (torch.float8_e4m3fn, 5e-2),
        (torch.complex64, 1e-4),
        (torch.complex128, 1e-10),
        (torch.int64, 0.0),
    ],
)
def test_the_tolerance_follows_from_the_results(
    dtype: torch.dtype, tolerance: float
) -> None:
    """The least precise type decides, unless the user does."""
    assert calls({"base": lambda x: x.to(dtype)}).tolerance == tolerance
    both = calls({"base": lambda x: (x.to(dtype), x.double())})
    assert both.tolerance == max(tolerance, 1e-10)
    assert calls({"base": lambda x: x.to(dtype)}, tolerance=0.5).tolerance == 0.5


def test_an_arm_within_the_tolerance_is_right() -> None:
    """Up to the bound itself."""
    calls({"base": plain, "fused": lambda x: plain(x) * 1.25}, tolerance=0.25)


def test_a_wrong_arm_is_refused_with_where_and_by_how_much() -> None:
    """Any result of any turn, and arguments that should change."""
    assert refusal(BackendError, {"base": plain, "fused": double}) == (
        "fused is wrong: relative error 1 in result 0 of call 0 against base, where "
        "0.0001 is tolerated; it was not timed"
    )
    arms: dict[str, Functions] = {"base": [plain, double], "fused": plain}
    assert refusal(BackendError, arms) == (
        "fused is wrong: relative error 0.5 in result 0 of call 1 against base, where "
        "0.0001 is tolerated; it was not timed"
    )
    arms = {
        "base": lambda x: (x, x.argmax(-1)),
        "fused": lambda x: (x, x.argmin(-1)),
    }
    assert refusal(BackendError, arms) == (
        "fused is wrong: other integers in result 1 of call 0 against base, where "
        "0.0001 is tolerated; it was not timed"
    )


def test_an_arm_that_does_not_write_its_argument_is_refused() -> None:
    """Kernels that return nothing are compared by what they write."""

    def write(x: Tensor, out: Tensor) -> None:
        out.copy_(x)

    arms: dict[str, Functions] = {"base": write, "fused": nothing}
    assert refusal(BackendError, arms, (X, torch.zeros(2, 3))) == (
        "fused is wrong: relative error 1 in inputs[1] of call 0 against base, where "
        "0.0001 is tolerated; it was not timed"
    )


def test_an_arm_with_other_results_is_refused() -> None:
    """Another type is other work, even where the values are right."""
    assert refusal(BackendError, {"base": plain, "f": lambda x: plain(x).double()}) == (
        "f returns float64 [2, 3], base float32 [2, 3]; they must be of one kind"
    )


def test_arms_that_return_the_same_memory_are_told_apart() -> None:
    """One buffer for all must not make a wrong arm right."""
    out = torch.zeros(2, 3)

    def wrong(x: Tensor) -> Tensor:
        return out.copy_(x * 2)

    message = refusal(BackendError, {"base": out.copy_, "wrong": wrong})
    assert message.startswith("wrong is wrong: relative error 1 in result 0")


def test_an_arm_that_gives_something_else_again_is_refused() -> None:
    """State of its own, or chance: no replay could be checked."""
    state = torch.zeros(2, 3)
    for arm in (state.add_, lambda x: x + torch.rand(2, 3)):
        message = refusal(BackendError, {"base": arm})
        assert message.startswith("base is not repeatable: relative error ")
        assert message.endswith(
            " in result 0 of call 0 when it is called again on the same inputs; what "
            "it keeps between calls must be among them"
        )


def test_a_base_without_numbers_is_refused() -> None:
    """Nothing is equal to NaN."""
    assert refusal(BackendError, {"base": lambda x: x / 0 * 0}) == (
        "base gives NaN in call 0, so nothing can be compared with it; check weights "
        "and inputs"
    )


def test_a_base_that_does_nothing_is_refused() -> None:
    """There must be something to compare."""
    assert refusal(InputError, {"base": nothing}) == (
        "base returns no tensor and changes no argument, so nothing can be compared; "
        "return what it computes"
    )


def test_results_elsewhere_are_refused() -> None:
    """Inputs on the host and weights on a GPU would be timed as a CPU's."""
    assert refusal(InputError, {"base": lambda x: x.to("meta")}) == (
        "base gives results on meta, and cpu is measured, where the inputs are; move "
        "them"
    )


def test_an_error_of_an_arm_keeps_its_traceback_and_names_the_arm() -> None:
    """It is the user's own, and must look like it."""

    def broken(_: Tensor) -> Tensor:
        msg = "my own"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="my own") as caught:
        calls({"base": plain, "fused": broken})
    assert caught.value.__notes__ == ["raised in a call of arm 'fused'"]


def test_what_arms_write_is_found() -> None:
    """By any of them; the inputs that the user gave are never written."""
    cache, x = torch.zeros(4, 3), X.clone()

    def update(x: Tensor, cache: Tensor) -> Tensor:
        cache[:2] = x
        return cache.sum()

    def destructive(x: Tensor, cache: Tensor) -> Tensor:
        total = update(x, cache)
        x.zero_()
        return total

    assert calls({"base": update}, (x, cache)).written == {1}
    arms: dict[str, Functions] = {"base": update, "fused": destructive}
    assert calls(arms, (x, cache)).written == {0, 1}
    assert x.equal(X)
    assert cache.equal(torch.zeros(4, 3))


def from_zero(step: int) -> tuple[Tensor, Tensor]:
    """A vector that is zero at step 0, and a state that always is."""
    return torch.full((4,), float(step)), torch.zeros(4)


def accumulate(x: Tensor, state: Tensor) -> Tensor:
    """Add to the state, which step 0 leaves as it is."""
    state += x
    return x * 2


def test_a_write_that_changes_no_value_is_found() -> None:
    """Torch counts it; that of a foreign kernel shows at another step."""

    def foreign(x: Tensor, state: Tensor) -> Tensor:
        state.numpy()[:] += x.numpy()
        return x * 2

    zeros = (torch.zeros(4), torch.zeros(4))
    assert calls({"base": accumulate}, zeros).written == {1}
    assert calls({"base": foreign}, zeros).written == set()
    assert calls({"base": foreign}, from_zero).written == {1}


def test_an_arm_that_does_less_at_another_step_is_refused() -> None:
    """Step 0 alone could not tell, for there is nothing to add."""
    arms: dict[str, Functions] = {"base": accumulate, "lazy": lambda x, _: x * 2}
    assert refusal(BackendError, arms, from_zero) == (
        "lazy is wrong: relative error 1 in inputs[1] of call 0 at step 31 against "
        "base, where 0.0001 is tolerated; it was not timed"
    )


def test_arguments_that_the_base_changes_at_another_step_only_must_change() -> None:
    """An arm that changes them too is right; one that does not is told which."""

    def limits(step: int) -> Sequence[Tensor]:
        return (torch.arange(4.0) * step,)

    def limit(x: Tensor) -> None:
        x.clamp_(max=3)

    def alike(x: Tensor) -> None:
        x.copy_(x.clamp(max=3))

    arms: dict[str, Functions] = {"base": limit, "alike": alike}
    made = calls(arms, limits)
    assert (made.written, made.tolerance) == ({0}, 1e-4)
    message = refusal(BackendError, {"base": limit, "lazy": nothing}, limits)
    assert " in inputs[0] of call 0 at step 31 against base, " in message


def test_a_step_that_is_like_the_first_is_not_tried() -> None:
    """It could show nothing new."""
    tried: list[float] = []

    def note(x: Tensor) -> Tensor:
        tried.append(float(x[0]))
        return x + 1

    calls({"base": note}, lambda step: [torch.full((2,), float(step == 5))])
    assert tried == [0.0, 1.0, 0.0]
    tried.clear()
    calls({"base": note}, lambda _: [torch.zeros(2)])
    assert tried == [0.0, 0.0]


def test_weights_are_as_they_were_when_an_arm_fails_on_spoilt_ones() -> None:
    """They are the user's."""
    weight = torch.eye(3)

    def picky(x: Tensor) -> Sequence[Tensor]:
        if weight.isnan().any():
            msg = "weights are NaN"
            raise ValueError(msg)
        return x @ weight, weight

    with pytest.raises(ValueError, match="weights are NaN"):
        calls({"base": picky})
    assert weight.equal(torch.eye(3))


def test_complex_results_may_be_rounded_otherwise() -> None:
    """As real ones of the same precision may."""
    x, z = torch.randn(2, 8, 8, dtype=torch.complex64)
    calls({"base": lambda x, z: x @ z @ z, "other": lambda x, z: x @ (z @ z)}, (x, z))


def test_memory_that_an_arm_only_writes_may_be_spoilt() -> None:
    """What it also reads is kept as it is: weights, caches, views of them."""
    out, weight = torch.zeros(2, 3), torch.eye(3)

    def own(x: Tensor) -> Sequence[Tensor]:
        return out.copy_(x), weight, weight[0]

    kept = calls({"base": own}).kept
    assert kept == {weight.untyped_storage().data_ptr()}
    assert weight.equal(torch.eye(3))


def test_fresh_results_and_arguments_are_no_memory_of_the_arm() -> None:
    """Neither is spared when results are spoilt."""
    made = calls({"base": lambda x: (x, x[1:], x + 1)})
    assert made.kept == set()


def test_regions_that_an_arm_never_opens_are_warned_of() -> None:
    """Modules and markers open them; shares of the arm would lack them."""
    block = nn.ModuleDict({"attn": nn.Identity(), "mlp": nn.Identity()})

    def marked(x: Tensor) -> Tensor:
        with regions.region("attention"):
            return plain(x)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = block

        def forward(self, x: Tensor) -> Tensor:
            return plain(torch.as_tensor(self.parts["mlp"](self.parts["attn"](x))))

    patterns = {"attention": "parts.attn", "mlp": "parts.mlp"}
    made = calls({"base": Block(), "fused": marked}, patterns=patterns)
    (warning,) = made.warnings(patterns.keys())
    assert warning == (
        "fused ran nothing in region mlp: no module of it that is called matches, and "
        "its code does not mark it"
    )
