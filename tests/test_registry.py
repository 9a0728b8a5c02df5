import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from layerscope import registry
from layerscope.environment import DeviceFacts
from layerscope.errors import BackendError, InputError
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import BACKEND, ReferenceBuilt, ReferenceStep
from layerscope.layers.spec import DType, Family, LayerSpec
from layerscope.plugin import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    BackendSpec,
    BuildContext,
    Requires,
    StepShape,
    Switch,
)
from layerscope.regions import Region
from layerscope.run_header import Decision
from layerscope.study import Arm
from tests import handmade, plugins

ALL = (Region.ATTENTION, Region.O_PROJ_ALL_REDUCE, Region.MOE)


class PaperStep:
    """A step that does nothing."""

    def run(self, region: Region, pass_index: int) -> None:
        """Enqueue nothing."""

    def expert_ids(self, pass_index: int) -> Tensor | None:  # noqa: ARG002
        """No experts."""
        return None

    def touched_bytes(self, region: Region) -> int | None:  # noqa: ARG002
        """No bytes."""
        return None


class PaperBuilt:
    """Built from a context that a test may look at; declines steps above `max_rows`."""

    device_bytes = 1_000

    def __init__(self, context: BuildContext, max_rows: int) -> None:
        self.context = context
        self.step = PaperStep()
        self._max_rows = max_rows

    def plan(self, shape: StepShape) -> PaperStep | None:
        """The one step, or None."""
        return self.step if shape.rows <= self._max_rows else None


def paper(
    covers: Mapping[Family, tuple[Region, ...]] | None = None,
    built: list[PaperBuilt] | None = None,
    *,
    max_rows: int = 64,
    api_version: int = API_VERSION,
) -> BackendSpec:
    """A backend on paper with two switches; what it builds is added to `built`."""

    def build(context: BuildContext) -> PaperBuilt:
        made = PaperBuilt(context, max_rows)
        if built is not None:
            built.append(made)
        return made

    return BackendSpec(
        name="paper",
        api_version=api_version,
        summary="a backend on paper",
        covers={Family.QWEN3_MOE: ALL} if covers is None else covers,
        build=build,
        switches=(
            Switch(name="pdl", values=("on", "off", "stock"), toggles="launch"),
            Switch(name="split", values=("1", "2"), toggles="split of the KV"),
        ),
    )


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make entry points of (name, target), and the modules that hold objects."""

    def install(*entries: tuple[str, str], **modules: object) -> None:
        found = [EntryPoint(*entry, ENTRY_POINT_GROUP) for entry in entries]

        def entry_points(*, group: str) -> list[EntryPoint]:
            assert group == "layerscope.backends"
            return found

        monkeypatch.setattr(registry, "entry_points", entry_points)
        for name, held in modules.items():
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(BACKEND=held))

    return install


@pytest.fixture(scope="module")
def problem() -> Problem:
    spec = LayerSpec(model=handmade.model(), dtype=DType.FLOAT32, context=16)
    return make_problem(spec, ProblemOptions(passes=2, steps=2))


def test_the_reference_is_known_without_any_distribution(install: Install) -> None:
    """A checkout that was never installed measures too."""
    install()
    assert list(registry.discover()) == ["reference"]
    assert registry.load("reference") is BACKEND


def test_backends_are_listed_by_name_and_none_is_imported(install: Install) -> None:
    """Listing shows a backend whose import would fail."""
    install(("zeta", "no_such_module:BACKEND"), ("alpha", "nor_this_one:BACKEND"))
    assert list(registry.discover()) == ["alpha", "reference", "zeta"]


def test_a_backend_installed_twice_from_one_place_is_one(install: Install) -> None:
    """The distribution of layerscope offers the reference as well."""
    install(("reference", "layerscope.layers.reference:BACKEND"))
    assert list(registry.discover()) == ["reference"]


def test_two_backends_of_one_name_are_an_error_naming_both(install: Install) -> None:
    """None of the two is measured under the other's name."""
    install(("fused", "ours.fused:BACKEND"), ("fused", "theirs.fused:BACKEND"))
    with pytest.raises(BackendError) as raised:
        registry.discover()
    assert str(raised.value) == (
        "two backends are called fused: ours.fused:BACKEND and theirs.fused:BACKEND; "
        "uninstall one of them"
    )


def test_every_clash_of_names_is_told_with_its_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and versions of those who offer them: that is what one can uninstall."""
    for name, version in (("ours", "1.0"), ("theirs", "2.1")):
        for backend in ("fused", "split"):
            package = f"{name}-{backend}"
            plugins.install(tmp_path, package, "", version=version, backend=backend)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError) as raised:
        registry.discover()
    clashes, advice = str(raised.value).rsplit("; ", 1)
    assert advice == "uninstall one of them"
    assert sorted(clashes.split("; ")) == [
        f"two backends are called {backend}: ours_{backend}:BACKEND of ours-{backend} "
        f"1.0 and theirs_{backend}:BACKEND of theirs-{backend} 2.1"
        for backend in ("fused", "split")
    ]


def test_a_distribution_seen_twice_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first on the path counts, as for imports."""
    for folder, version in (("installed", "1.0"), ("checkout", "1.1")):
        plugins.install(tmp_path / folder, "fused", "", version=version)
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert registry.origin(registry.discover()["fused"]) == (
        "fused:BACKEND of fused 1.1"
    )


def test_no_one_replaces_the_reference(install: Install) -> None:
    """The name of the fallback is taken."""
    install(("reference", "theirs:BACKEND"))
    with pytest.raises(BackendError, match="two backends are called reference"):
        registry.load("reference")


@pytest.mark.parametrize(
    ("name", "hint"), [("fussed", "did you mean fused? "), ("quite-another", "")]
)
def test_an_unknown_arm_is_answered_with_those_there_are(
    install: Install, name: str, hint: str
) -> None:
    """The closest name is suggested where one is close."""
    install(("fused", "ours:BACKEND"))
    with pytest.raises(InputError) as raised:
        registry.load(name)
    assert str(raised.value) == (
        f"unknown arm {name!r}; {hint}backends here: fused, reference"
    )


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_module_here", "ModuleNotFoundError: No module named"),
        ("", "AttributeError: .*BACKEND"),
        ("BACKEND = (", "SyntaxError: "),
        ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
        ("raise OSError('libfused.so')", "OSError: libfused.so"),
        (
            "from layerscope.plugin import BackendSpec as B; BACKEND = B(tides=())",
            "TypeError: .*unexpected keyword argument 'tides'",
        ),
        ("import os; os.environ['NO_SUCH_VARIABLE']", "KeyError: 'NO_SUCH_VARIABLE'"),
        ("class Odd(Exception): pass\nraise Odd('one\\ntwo')", "Odd: one; "),
        ("raise SystemExit('needs a GPU')", "SystemExit: needs a GPU"),
    ],
)
def test_a_backend_that_cannot_be_imported_is_one_line_with_the_cause(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    cause: str,
) -> None:
    """A broken plugin does not end layerscope with the plugin's traceback."""
    (tmp_path / "broken_backend.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_backend", raising=False)
    install(("fused", "broken_backend:BACKEND"))
    begin = r"backend fused \(broken_backend:BACKEND\) cannot be imported: "
    with pytest.raises(BackendError, match=begin + cause) as raised:
        registry.load("fused")
    assert str(raised.value).endswith("; see where: python -c 'import broken_backend'")
    assert "\n" not in str(raised.value)


def test_an_entry_point_that_names_no_object_is_one_line(install: Install) -> None:
    """Metadata may hold anything."""
    install(("fused", "not a module!"))
    with pytest.raises(BackendError) as raised:
        registry.load("fused")
    assert str(raised.value) == (
        "backend fused (not a module!) is no module:object; tell its author"
    )


def test_fields_of_wrong_types_are_told_in_one_line(install: Install) -> None:
    """All at once, when it is loaded, not by whoever reads such a field first."""
    fields: dict[str, Any] = {"covers": [Region.MOE], "requires": None, "waits": "all"}
    install(("paper", "paper_broken:BACKEND"), paper_broken=replace(paper(), **fields))
    with pytest.raises(BackendError) as raised:
        registry.load("paper")
    assert str(raised.value) == (
        "backend paper (paper_broken:BACKEND) is broken: covers is "
        "[<Region.MOE: 'moe'>], and must be a mapping of families to tuples of "
        "regions; requires is None, and must be a Requires; waits is 'all', and must "
        "be a tuple of names; tell its author"
    )


def test_a_backend_of_another_contract_is_refused(install: Install) -> None:
    """Both versions are told."""
    install(("fused", "fused_next:BACKEND"), fused_next=paper(api_version=2))
    with pytest.raises(BackendError) as raised:
        registry.load("fused")
    assert str(raised.value) == (
        "backend fused speaks contract version 2, this layerscope version 1; "
        "install a matching release"
    )


def test_a_backend_under_another_name_than_its_own_is_refused(
    install: Install,
) -> None:
    """Reports would name what no one installed."""
    install(("fused", "fused_paper:BACKEND"), fused_paper=paper())
    with pytest.raises(BackendError) as raised:
        registry.load("fused")
    assert str(raised.value) == (
        "backend fused (fused_paper:BACKEND) calls itself paper; its entry point must "
        "have the same name"
    )


def test_what_is_no_backend_is_refused(install: Install) -> None:
    """An entry point may name anything."""
    install(("fused", "fused_what:BACKEND"), fused_what=paper)
    with pytest.raises(BackendError, match=r"\(fused_what:BACKEND\) is not a Backend"):
        registry.load("fused")


class NoChecks:
    """Stands for a check that fails."""

    def __call__(self, spec: LayerSpec, device: DeviceFacts) -> list[str]:
        """Fail."""
        raise LookupError((spec.layer, device.name))


CPU = DeviceFacts(type="cpu", name="Paper CPU")


def test_all_reasons_against_an_arm_come_at_once(problem: Problem) -> None:
    """Switches, requirements, its own check, and what is not supported."""
    backend = replace(
        paper(),
        requires=Requires(device_types=("cuda",)),
        check=lambda *_: ["needs a C++ compiler: apt install g++"],
    )
    arm = Arm(backend="paper", switches={"split": "3"})
    assert registry.reasons(backend, arm, problem.spec, CPU) == [
        "needs split to be one of 1, 2, not 3",
        "needs device cuda, not cpu",
        "needs a C++ compiler: apt install g++",
    ]


def test_an_arm_that_fits_has_no_reasons_against_it(problem: Problem) -> None:
    """The reference fits everything on one rank."""
    arm = Arm(backend="reference")
    assert registry.reasons(BACKEND, arm, problem.spec, CPU) == []


def test_a_check_that_fails_is_a_reason(problem: Problem) -> None:
    """What is wrong with one backend does not end the listing of the others."""
    backend = replace(paper({Family.QWEN3_MOE: ()}), check=NoChecks())
    assert registry.reasons(backend, Arm(backend="paper"), problem.spec, CPU) == [
        "cannot be checked (LookupError: (0, 'Paper CPU')); tell its author",
        "covers no region of qwen3_moe",
    ]


def dispatched(
    install: Install, problem: Problem, backend: BackendSpec
) -> registry.Dispatched:
    """`backend` as arm ``paper:split=2`` on `problem`."""
    install(("paper", "paper_backend:BACKEND"), paper_backend=backend)
    return registry.dispatch(Arm(backend="paper", switches={"split": "2"}), problem)


def test_a_backend_that_covers_a_layer_runs_all_of_it(
    install: Install, problem: Problem
) -> None:
    """It is built once, from the problem and the arm's switches."""
    built: list[PaperBuilt] = []
    found = dispatched(install, problem, paper(built=built))
    (made,) = built
    assert made.context.problem is problem
    assert made.context.switches == {"pdl": "on", "split": "2"}
    assert made.context.waits.abort.tolist() == [0]
    assert made.context.waits is found.waits
    assert found.steps == dict.fromkeys(ALL, made.step)
    assert found.decisions == tuple(
        Decision(arm="paper:split=2", region=region, backend="paper") for region in ALL
    )
    assert (found.build.arm, found.build.device_bytes) == ("paper:split=2", 1_000)


def test_regions_that_are_not_covered_fall_back_one_by_one(
    install: Install, problem: Problem
) -> None:
    """Each decision says who runs the region, and why where it is the fallback."""
    built: list[PaperBuilt] = []
    covers = {Family.QWEN3_MOE: (Region.O_PROJ_ALL_REDUCE,)}
    found = dispatched(install, problem, paper(covers, built))
    assert found.steps[Region.O_PROJ_ALL_REDUCE] is built[0].step
    assert isinstance(found.steps[Region.ATTENTION], ReferenceStep)
    assert found.steps[Region.MOE] is found.steps[Region.ATTENTION]
    why = "paper does not cover it"
    assert [(d.region, d.backend, d.reason) for d in found.decisions] == [
        ("attention", "reference", why),
        ("o_proj_all_reduce", "paper", ""),
        ("moe", "reference", why),
    ]
    assert found.build.device_bytes > 1_000


def test_regions_that_are_declined_fall_back_with_the_reason(
    install: Install, problem: Problem
) -> None:
    """The backend is built and runs the others."""
    built: list[PaperBuilt] = []
    backend = replace(
        paper(built=built),
        declines=lambda spec: {Region.MOE: f"runs at most 4 rows, not {spec.rows}"},
    )
    found = dispatched(install, problem, backend)
    assert found.steps[Region.ATTENTION] is built[0].step
    assert isinstance(found.steps[Region.MOE], ReferenceStep)
    assert [(d.region, d.backend, d.reason) for d in found.decisions] == [
        ("attention", "paper", ""),
        ("o_proj_all_reduce", "paper", ""),
        ("moe", "reference", "paper runs at most 4 rows, not 6"),
    ]


def test_a_backend_that_declines_all_regions_is_not_built(
    install: Install, problem: Problem
) -> None:
    """The arm runs all the same, and each decision says that it is the fallback."""
    built: list[PaperBuilt] = []
    why = "runs at most 4 rows, not 6"
    backend = replace(paper(built=built), declines=lambda _: dict.fromkeys(ALL, why))
    found = dispatched(install, problem, backend)
    assert (built, found.whole) == ([], None)
    assert all(isinstance(step, ReferenceStep) for step in found.steps.values())
    assert {(d.backend, d.reason) for d in found.decisions} == {
        ("reference", f"paper {why}")
    }


def test_what_declines_without_a_mapping_is_refused(problem: Problem) -> None:
    """Before anything is made."""
    backend = replace(paper(), declines=lambda _: None)  # type: ignore[arg-type,return-value]
    assert registry.reasons(backend, Arm(backend="paper"), problem.spec, CPU) == [
        (
            "cannot be checked (declines answered None: it must map regions to "
            "reasons); tell its author"
        )
    ]


def test_a_backend_that_declines_the_step_is_not_measured(
    install: Install, problem: Problem
) -> None:
    """Run by the fallback, its name would stand before the fallback's numbers."""
    with pytest.raises(BackendError) as raised:
        dispatched(install, problem, paper(max_rows=5))
    assert str(raised.value) == (
        "paper:split=2 declined this step: it would be reference once more; leave it "
        "out of --arms"
    )


def test_a_fallback_that_declines_is_a_bug_that_is_told(
    install: Install, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No region is left without anyone to run it."""
    monkeypatch.setattr(ReferenceBuilt, "plan", lambda *_: None)
    with pytest.raises(BackendError, match="fallback reference declined the step"):
        dispatched(install, problem, paper({}))


class PaperWhole:
    """A step that runs the layer at once."""

    why_whole = "compiled as one graph"

    def run_layer(self, pass_index: int) -> None:
        """Enqueue nothing."""

    def expert_ids(self, pass_index: int) -> Tensor | None:  # noqa: ARG002
        """No experts."""
        return None

    def layer_bytes(self) -> int | None:
        """No bytes."""
        return None


class WholeBuilt:
    """Runs the layer at once, whatever the step."""

    device_bytes = 0

    def plan(self, shape: StepShape) -> PaperWhole:  # noqa: ARG002
        """Always."""
        return PaperWhole()


def test_a_whole_step_of_all_regions_runs_them(
    install: Install, problem: Problem
) -> None:
    """None is told apart, and each decision says why."""
    found = dispatched(install, problem, replace(paper(), build=lambda _: WholeBuilt()))
    assert isinstance(found.whole, PaperWhole)
    assert {(d.backend, d.reason) for d in found.decisions} == {
        ("paper", "counted as other: compiled as one graph")
    }


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ({Region.MOE: "runs 4 rows"}, "moe to the fallback (runs 4 rows)"),
        (
            {Region.ATTENTION: "runs 4 rows", Region.MOE: "runs 4 rows"},
            "attention and moe to the fallback (runs 4 rows)",
        ),
    ],
)
def test_a_whole_step_may_leave_no_region(
    install: Install, problem: Problem, left: dict[Region, str], told: str
) -> None:
    """It would run what the run says ran on the fallback."""
    backend = replace(paper(), build=lambda _: WholeBuilt(), declines=lambda _: left)
    with pytest.raises(BackendError) as raised:
        dispatched(install, problem, backend)
    assert str(raised.value) == (
        f"backend paper runs the layer whole, and leaves {told}, which would not run; "
        "tell its author"
    )


def test_what_tells_idle_switches_without_a_mapping_is_refused(
    problem: Problem,
) -> None:
    """Before anything is made."""
    backend = replace(paper(), idle=lambda *_: None)  # type: ignore[arg-type]
    assert registry.reasons(backend, Arm(backend="paper"), problem.spec, CPU) == [
        (
            "cannot be checked (idle answered None: it must map switches to reasons); "
            "tell its author"
        )
    ]


def test_what_is_idle_in_a_draft_is_asked_where_there_is_one(problem: Problem) -> None:
    """Before the layer is measured; not of a backend without a draft."""
    arm, draft = Arm(backend="paper"), DraftSpec(model="paper", vocab_size=64)
    wrong = replace(paper(), idle_in_draft=lambda *_: {"early": "it is late"})
    drafting = replace(wrong, build_draft=BACKEND.build_draft)
    assert registry.reasons(drafting, arm, problem.spec, CPU, draft) == [
        (
            "cannot be checked (idle_in_draft names early, which is no switch of it); "
            "tell its author"
        )
    ]
    assert registry.reasons(drafting, arm, problem.spec, CPU) == []
    assert registry.reasons(wrong, arm, problem.spec, CPU, draft) == []
