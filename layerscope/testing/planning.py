"""Whether a backend builds and decides as it must: on the host, and always alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from torch import Tensor

from layerscope import coverage
from layerscope.arm_switches import switch_values
from layerscope.layers.problem import Problem
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import (
    BackendSpec,
    BuildContext,
    Step,
    StepShape,
    Waits,
    WholeStep,
)
from layerscope.study import Arm
from layerscope.testing.raising import calling
from layerscope.testing.watch import (
    OperatorLog,
    Watch,
    first_operators,
    layer_tensors,
    writable,
)

Shape = TypeVar("Shape")

_TIMES: Final = 3
_STEP_METHODS: Final = ("run", "expert_ids", "touched_bytes")


def build_and_plan(
    backend: BackendSpec, arm: Arm, problem: Problem
) -> list[str] | None:
    """What is wrong before anything runs; None where `plan` declines the step."""
    spec, tensors = problem.spec, layer_tensors(problem)
    may_write: dict[str, Tensor | None] = {}
    for index in range(problem.passes):
        may_write |= writable(problem, spec.regions, index)
    watch = Watch(tensors)
    context = BuildContext(
        problem=problem,
        waits=Waits.on(problem.device),
        switches=switch_values(arm, backend),
        stamps=arm.stamps,
    )
    with calling("build"):
        built = backend.build(context)
    failures = []
    written = watch.written(may_write)
    if written:
        failures.append(f"build wrote to {', '.join(written)}")
    if not is_size(built.device_bytes):
        failures.append(f"device_bytes is {built.device_bytes!r}, which is no size")
    shape = StepShape(spec.requests, spec.tokens_per_request, spec.context)
    foreign = _foreign_shapes(shape, spec.page_size)
    failures += planning(built.plan, shape, foreign, tensors)
    with calling("plan"):
        step = built.plan(shape)
    if step is None:
        return failures or None
    return failures + list(_wrong_step(step, spec, backend))


def is_size(value: object) -> bool:
    """Whether `value` is a count of bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong_step(
    step: Step | WholeStep, spec: LayerSpec, backend: BackendSpec
) -> Iterator[str]:
    elsewhere = coverage.left(backend, spec)
    covered = [name for name in spec.regions if name not in elsewhere]
    if isinstance(step, WholeStep):
        if elsewhere:
            names = ", ".join(elsewhere)
            yield f"its WholeStep runs {names}, which it says it does not run"
        with calling("layer_bytes"):
            counts = {"layer_bytes": step.layer_bytes()}
    elif all(callable(getattr(step, name, None)) for name in _STEP_METHODS):
        with calling("touched_bytes"):
            counts = {f"touched_bytes({r})": step.touched_bytes(r) for r in covered}
    else:
        yield f"plan answered {step!r}, which is neither a Step nor a WholeStep"
        return
    for what, count in counts.items():
        if count is not None and not is_size(count):
            yield f"{what} is {count!r}, which is no size"


def planning(
    plan: Callable[[Shape], object],
    shape: Shape,
    foreign: Sequence[Shape],
    tensors: Mapping[str, Tensor],
) -> Iterator[str]:
    """What is wrong with `plan`.

    Args:
        plan: `Built.plan` or `BuiltDraft.plan`.
        shape: what the problem has buffers for.
        foreign: what it has none for.
        tensors: all of the problem.
    """
    watch = Watch(tensors)
    with calling("plan"), OperatorLog() as log:
        answers = [plan(shape) for _ in range(_TIMES)]
        agreed = [other for other in foreign if plan(other) is not None]
    if log.names:
        ran = ", ".join(first_operators(log.names))
        yield f"plan ran {ran}: it must decide on the host alone"
    written = watch.written({})
    if written:
        yield f"plan wrote {', '.join(written)}: it must decide on the host alone"
    if len({type(answer) for answer in answers}) > 1:
        kinds = ", ".join("None" if a is None else type(a).__name__ for a in answers)
        yield f"plan answered the same shape with {kinds}: it must always decide alike"
    for other in agreed:
        yield f"plan agreed to {other}, for which its problem has no buffers"


def _foreign_shapes(shape: StepShape, page_size: int) -> tuple[StepShape, ...]:
    """Steps that are larger than `shape` in one way each."""
    requests, tokens, context = shape.requests, shape.tokens_per_request, shape.context
    return (
        StepShape(requests + 1, tokens, context),
        StepShape(requests, tokens + 1, context),
        StepShape(requests, tokens, context + page_size),
    )
