import msgspec
import pytest
from torch import Tensor

from layerscope.layers.families import required_bytes
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import DType, Family, LayerSpec
from layerscope.plugin import Waits
from layerscope.regions import Mark, Region, observing
from layerscope.registry import Dispatched, dispatch
from layerscope.run_header import Build, RegionBytes
from layerscope.runner.layer import LayerWorkload
from tests import handmade
from tests.runner import fakes
from tests.runner.fakes import FUSED, REFERENCE


@pytest.fixture(scope="module")
def problem() -> Problem:
    return fakes.problem(fakes.study())


def test_the_bytes_of_a_replay_follow_from_its_experts(problem: Problem) -> None:
    """The first passes together, with the experts that the step drew for each."""
    workload = LayerWorkload(problem, {})
    assert len(workload.distinct_experts) == problem.steps
    for step, counts in enumerate(workload.distinct_experts):
        one, two = (sum(required_bytes(problem.spec, n).values()) for n in counts)
        assert workload.required_bytes(step, 1) == one
        assert workload.required_bytes(step, 2) == one + two


def test_required_bytes_of_a_region_are_a_mean_over_the_draw(problem: Problem) -> None:
    """Only the experts' region depends on it; the mean is rounded down."""
    arms = {"reference": dispatch(REFERENCE, problem)}
    workload = LayerWorkload(problem, arms)
    drawn = [n for row in workload.distinct_experts for n in row]
    moe = [required_bytes(problem.spec, n)[Region.MOE] for n in drawn]
    fixed = required_bytes(problem.spec, drawn[0])
    step = arms["reference"].steps[Region.MOE]
    want = {
        Region.ATTENTION: fixed[Region.ATTENTION],
        Region.O_PROJ_ALL_REDUCE: fixed[Region.O_PROJ_ALL_REDUCE],
        Region.MOE: sum(moe) // len(moe),
    }
    assert list(workload.region_bytes()) == [
        RegionBytes(
            arm="reference",
            region=region,
            touched=step.touched_bytes(region),
            required=needed,
        )
        for region, needed in want.items()
    ]


def test_a_dense_layer_needs_the_same_bytes_at_every_step() -> None:
    """Nothing is drawn, so every pass adds the same."""
    model = msgspec.structs.replace(
        handmade.model(), family=Family.LLAMA, experts=0, mlp_size=64
    )
    spec = LayerSpec(model=model, dtype=DType.FLOAT32, context=16)
    workload = LayerWorkload(make_problem(spec, ProblemOptions(passes=3, steps=2)), {})
    one = sum(required_bytes(spec, None).values())
    assert workload.distinct_experts == []
    for step in range(2):
        sums = [workload.required_bytes(step, passes) for passes in (1, 2, 3)]
        assert sums == [one, 2 * one, 3 * one]


def test_replays_that_the_cache_could_hold_are_doubted(problem: Problem) -> None:
    """Five times the cache is enough, and one byte less is not."""
    workload = LayerWorkload(problem, {})
    needed = sum(
        row.required
        for row in LayerWorkload(
            problem, {"reference": dispatch(REFERENCE, problem)}
        ).region_bytes()
    )
    assert not list(workload.cache_warnings(5, needed))
    (line,) = workload.cache_warnings(5, needed + 1)
    assert "less than 5 times the L2 cache" in line


class Whole:
    """A step that runs all regions as one."""

    why_whole = "compiled as one graph"

    def __init__(self) -> None:
        self.ran: list[int] = []

    def run_layer(self, pass_index: int) -> None:
        """Note the pass."""
        self.ran.append(pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:  # noqa: ARG002
        """None are kept."""
        return None

    def layer_bytes(self) -> int | None:
        """What a test can count."""
        return 7


class Marks:
    """An observer that keeps the names of regions."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def opened(self, mark: Mark) -> None:
        """Keep the name."""
        self.names.append(mark.name)

    def closed(self, mark: Mark) -> None:
        """Nothing to note."""


def test_an_arm_that_runs_the_layer_whole_is_counted_as_other(
    problem: Problem,
) -> None:
    """Its kernels belong to no one region, and its bytes stand against all of them."""
    whole, marks = Whole(), Marks()
    build = Build(arm="fused", seconds=0.0, device_bytes=0)
    backend = dispatch(REFERENCE, problem).backend
    waits = Waits.on(problem.device)
    arm = Dispatched(FUSED, backend, {}, whole, (), build, waits)
    workload = LayerWorkload(problem, {"fused": arm})
    with observing(marks):
        workload.run_pass("fused (A/A)", 1, 2)
    assert whole.ran == [1]
    assert marks.names == ["other"]
    (row,) = workload.region_bytes()
    reference = {"reference": dispatch(REFERENCE, problem)}
    required = sum(
        row.required for row in LayerWorkload(problem, reference).region_bytes()
    )
    assert row == RegionBytes(arm="fused", region="other", touched=7, required=required)
