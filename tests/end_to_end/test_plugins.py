"""Backends of others, installed into virtual environments of their own."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from layerscope.run import load
from tests import plugins
from tests.plugins import Environment

SMALL = (
    *("profile", "--device", "cpu", "--model", "tiny-moe", "--context", "32"),
    *("--samples", "24", "--passes", "4", "--captures", "1", "--recorder", "none"),
    *("--no-draft", "--time-budget", "2"),
)
ALL = ("attention", "o_proj_all_reduce", "moe")

GOOD = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE

    BACKEND = replace(REFERENCE, name="good", summary="the reference once more")
"""
PART = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE
    from layerscope.layers.spec import Family
    from layerscope.regions import Region

    COVERS = {Family.QWEN3_MOE: (Region.O_PROJ_ALL_REDUCE,)}
    BACKEND = replace(REFERENCE, name="part", covers=COVERS)
"""
CHOOSY = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE
    from layerscope.plugin import Requires

    BACKEND = replace(
        REFERENCE,
        name="choosy",
        requires=Requires(architectures=("gfx950",), max_rows=4),
        check=lambda spec, device: ["needs patience: wait for a year"],
    )
"""
REFUSED = (
    "needs architecture gfx950, and this device has none",
    "runs at most 4 rows, not 6",
    "needs patience: wait for a year",
)
BROKEN = "import no_such_module_here"
NEXT = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE

    BACKEND = replace(REFERENCE, name="next", api_version=2)
"""
WAITING = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE

    BACKEND = replace(REFERENCE, name="waiting", waits=("combine",))
"""
HANGING = """
    import time
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE, ReferenceBuilt

    class Hanging(ReferenceBuilt):
        def __init__(self, context):
            super().__init__(context.problem)

        def plan(self, shape):
            self.step = super().plan(shape)
            return self

        def run(self, region, pass_index):
            time.sleep(60)

        def expert_ids(self, pass_index):
            return self.step.expert_ids(pass_index)

        def touched_bytes(self, region):
            return None

    BACKEND = replace(REFERENCE, name="hanging", waits=("combine",), build=Hanging)
"""
LIAR = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE, ReferenceBuilt
    from layerscope.regions import Region

    class Liar:
        device_bytes = 0

        def __init__(self, context):
            self.problem = context.problem
            self.honest = ReferenceBuilt(context.problem)

        def plan(self, shape):
            self.step = self.honest.plan(shape)
            return self

        def run(self, region, pass_index):
            self.step.run(region, pass_index)
            if region is Region.MOE:
                self.problem.buffers[pass_index].out.mul_(1.5)

        def expert_ids(self, pass_index):
            return self.step.expert_ids(pass_index)

        def touched_bytes(self, region):
            return None

    BACKEND = replace(REFERENCE, name="liar", build=Liar)
"""


HUNG = (
    "its first run, in a process of its own, did not end within 2 s; that process was "
    "ended"
)


class Outcome(NamedTuple):
    """What a study left, and what was said while it was made."""

    environment: Environment
    folder: Path
    said: list[str]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with backends of every kind but clashing ones."""
    environment = plugins.environment(tmp_path_factory.mktemp("crowd"))
    plugins.install(environment.site, "acme-good", GOOD, version="1.2", backend="good")
    for name, source in (
        ("part", PART),
        ("choosy", CHOOSY),
        ("broken", BROKEN),
        ("next", NEXT),
        ("waiting", WAITING),
        ("hanging", HANGING),
    ):
        plugins.install(environment.site, name, source)
    return environment


@pytest.fixture(scope="module")
def by_default(crowd: Environment) -> Outcome:
    """A small study of all backends that fit, which no one named."""
    folder = crowd.folder / "run"
    done = crowd.layerscope(*SMALL, "-o", str(folder))
    assert done.returncode == 0, done.stderr
    return Outcome(crowd, folder, done.stderr.splitlines())


def test_backends_that_fit_are_measured_by_default(by_default: Outcome) -> None:
    """They come after the reference, in the order of their names."""
    header = load(by_default.folder).header
    arms = ["reference", "good", "part", "waiting"]
    assert [arm.name for arm in header.study.arms] == arms
    assert {check.arm for check in header.numerics if check.passes} == {
        *(*arms, "reference (A/A)"),
    }


def test_kernels_that_wait_run_in_a_process_of_their_own_first(
    by_default: Outcome,
) -> None:
    """One that does not end there is left out; one that does is measured."""
    (warning,) = [
        warning
        for warning in load(by_default.folder).header.warnings
        if warning.startswith("left out hanging")
    ]
    assert warning == f"left out hanging: {HUNG}"


def test_what_does_not_fit_is_left_out_with_all_reasons(by_default: Outcome) -> None:
    """A line each: refused, broken, or of another contract."""
    left_out = [line for line in by_default.said if line.startswith("left out ")]
    broken, choosy, later = left_out
    assert broken.startswith(
        "left out broken: backend broken (broken:BACKEND of broken 1.0) cannot be "
        "imported: ModuleNotFoundError: No module named 'no_such_module_here'"
    )
    assert all(reason in choosy for reason in REFUSED)
    assert "next speaks contract version 2, this layerscope version 1" in later


def test_regions_that_are_not_covered_fall_back_and_the_run_says_so(
    by_default: Outcome,
) -> None:
    """Decisions are on disk for every arm and region, and printed with the report."""
    header = load(by_default.folder).header
    decided = {(d.arm, d.region): (d.backend, d.reason) for d in header.decisions}
    why = "part does not cover it"
    assert decided == {
        **{("reference", region): ("reference", "") for region in ALL},
        **{("good", region): ("good", "") for region in ALL},
        ("part", "attention"): ("reference", why),
        ("part", "o_proj_all_reduce"): ("part", ""),
        ("part", "moe"): ("reference", why),
        **{("waiting", region): ("waiting", "") for region in ALL},
    }
    shown = by_default.environment.layerscope("show", str(by_default.folder))
    text = re.sub(r"\s+", " ", shown.stdout)
    for name in ("attention", "MoE"):
        assert f"part: {name} ran on reference ({why})" in text


def test_backends_shows_every_one_of_them(crowd: Environment) -> None:
    """With its distribution, and every reason against it here."""
    done = crowd.layerscope("backends", "--model", "tiny-moe", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    tables = {each["title"]: each["rows"] for each in json.loads(done.stdout)["tables"]}
    states = {row["backend"]: row["here"] for row in tables["backends"]}
    assert states == {
        "broken": "broken",
        "choosy": "refuses",
        "good": "fits",
        "hanging": "fits",
        "next": "broken",
        "part": "fits",
        "reference": "fits",
        "waiting": "fits",
    }
    offered = {row["backend"]: row["offered_by"] for row in tables["backends"]}
    assert offered["good"] == "acme-good 1.2"
    reasons = [row["reason"] for row in tables["why not here"] if "c" in row["backend"]]
    assert len(reasons) == len(REFUSED)
    assert all(map(str.startswith, reasons, REFUSED))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("broken", ("error: backend broken (", "cannot be imported: ")),
        ("next", ("error: backend next speaks contract version 2",)),
        ("choosy", tuple(f"choosy {reason}" for reason in REFUSED)),
    ],
)
def test_what_is_named_and_does_not_fit_is_an_error(
    crowd: Environment, name: str, parts: tuple[str, ...]
) -> None:
    """Exit code 1, all reasons in one line, and nothing is made."""
    folder = crowd.folder / name
    done = crowd.layerscope(*SMALL, "--arms", f"reference,{name}", "-o", str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert all(part in line for part in parts)
    assert not folder.exists()


def test_an_arm_that_hangs_ends_the_study_where_it_is_named(
    crowd: Environment,
) -> None:
    """In seconds, with the reason as the last line; nothing was measured or is left."""
    folder = crowd.folder / "hanging"
    done = crowd.layerscope(*SMALL, "--arms", "reference,hanging", "-o", str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"error: hanging: {HUNG}"
    assert not folder.exists()


def test_two_distributions_with_one_name_are_an_error(tmp_path: Path) -> None:
    """Both are named with their versions, whichever command meets them."""
    environment = plugins.environment(tmp_path)
    plugins.install(environment.site, "acme-fused", GOOD, backend="good")
    plugins.install(environment.site, "other", GOOD, version="2.1", backend="good")
    for command in (("backends", "--model", "tiny-moe"), SMALL):
        done = environment.layerscope(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "error: two backends are called good: acme_fused:BACKEND of acme-fused 1.0 "
            "and other:BACKEND of other 2.1; uninstall one of them\n"
        )


def test_a_backend_that_lies_about_its_numerics_is_not_timed(tmp_path: Path) -> None:
    """Exit code 1 and one line; no sample of any arm was made."""
    environment = plugins.environment(tmp_path)
    plugins.install(environment.site, "liar", LIAR)
    arms = ("--arms", "reference,liar", "-o", str(tmp_path / "run"))
    done = environment.layerscope(*SMALL, *arms)
    assert (done.returncode, done.stdout) == (1, "")
    *_, line = done.stderr.splitlines()
    assert line.startswith("error: liar is wrong: relative error ")
    assert line.endswith("bound 1e-05; it was not timed")
    assert not (tmp_path / "run").exists()
