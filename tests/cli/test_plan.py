import re
from math import inf, nan
from pathlib import Path

import pytest
import torch

from layerscope import registry
from layerscope.cli.options import ProfileOptions
from layerscope.cli.plan import plan
from layerscope.errors import BackendError, InputError
from layerscope.experiment import Experiment
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec, Routing
from layerscope.plugin import BackendSpec
from layerscope.regions import Region
from layerscope.study import Arm, Study

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def refusal(options: ProfileOptions) -> str:
    """The message with which `options` are refused on a CPU."""
    with pytest.raises(InputError) as caught:
        plan(options, CPU)
    return str(caught.value)


def test_defaults_on_a_cpu() -> None:
    """A laptop measures a small layer in fp32 that it runs in seconds."""
    planned = plan(ProfileOptions(arms="reference"), CPU)
    assert planned.study == Study(
        spec=LayerSpec(
            model=preset("tiny-moe"),
            dtype=DType.FLOAT32,
            weight_dtype=DType.FLOAT32,
            context=512,
        ),
        arms=(Arm(backend="reference"),),
        draft=DraftSpec(
            model="tiny-moe",
            vocab_size=4_096,
            dtype=DType.FLOAT32,
            weight_dtype=DType.FLOAT32,
        ),
        lengths=(8,),
    )
    assert planned.device == "cpu"
    assert planned.model_folder is None
    folder, name = planned.output.parts
    assert folder == "layerscope-runs"
    assert re.fullmatch(r"\d{8}-\d{6}-tiny-moe", name)


def test_defaults_on_a_gpu() -> None:
    """A GPU measures a real layer in bf16 at three lengths, and edits its graphs."""
    planned = plan(ProfileOptions(arms="reference"), GPU)
    assert planned.study == Study(
        spec=LayerSpec(model=preset("qwen3-30b-a3b"), context=8192),
        arms=(Arm(backend="reference"),),
        draft=DraftSpec(model="qwen3-30b-a3b", vocab_size=151_936),
        experiments=(
            Experiment(serial="all"),
            Experiment(without="attention"),
            Experiment(serial="all", without="attention"),
            Experiment(without="o_proj_all_reduce"),
            Experiment(serial="all", without="o_proj_all_reduce"),
            Experiment(without="moe"),
            Experiment(serial="all", without="moe"),
        ),
        lengths=(8, 16, 24),
    )
    assert planned.device == "cuda"


def test_more_edits_come_after_the_usual_ones_and_each_once() -> None:
    """By the names that reports give them."""
    edits = ["serial passes", "moe delayed by 500 ns", "serial"]
    options = ProfileOptions(arms="reference", experiment=edits)
    assert plan(options, GPU).study.experiments[7:] == (
        Experiment(serial="passes"),
        Experiment(delay="moe", delay_ns=500),
    )


@pytest.mark.parametrize(
    ("options", "device", "message"),
    [
        (
            ProfileOptions(arms="reference", experiment=["faster"]),
            GPU,
            (
                "--experiment: 'faster' is no experiment; write serial, serial passes, "
                "serial REGION, programmatic, without REGION, REGION delayed by N ns, "
                "or REGION/ROLE delayed by N ns"
            ),
        ),
        (
            ProfileOptions(arms="reference", experiment=["mlp/down delayed by 9 ns"]),
            GPU,
            (
                "--experiment 'mlp/down delayed by 9 ns': qwen3-30b-a3b has no region "
                "'mlp'; it has attention, o_proj_all_reduce, moe, other, draft"
            ),
        ),
        (
            ProfileOptions(arms="reference", each_switch=True),
            CPU,
            (
                "--each-switch: no arm has switches (reference); name one that has "
                "some: layerscope backends lists them"
            ),
        ),
        (
            ProfileOptions(
                arms="reference", experiment=["serial passes", "serial mlp"]
            ),
            GPU,
            (
                "--experiment 'serial mlp': qwen3-30b-a3b has no region 'mlp'; it has "
                "attention, o_proj_all_reduce, moe, other, draft"
            ),
        ),
        (
            ProfileOptions(arms="reference", experiment=["programmatic"]),
            CPU,
            "--experiment asks for edited graphs, and a CPU has no graphs",
        ),
        (
            ProfileOptions(
                arms="reference", experiment=["programmatic"], no_experiments=True
            ),
            GPU,
            "--experiment asks for edited graphs, and --no-experiments leaves them out",
        ),
    ],
)
def test_edits_that_cannot_be_made_are_refused(
    options: ProfileOptions, device: torch.device, message: str
) -> None:
    """In one line."""
    with pytest.raises(InputError) as raised:
        plan(options, device)
    assert str(raised.value) == message


def test_graphs_are_left_alone_where_that_is_asked_for() -> None:
    """And on a CPU, where there are none."""
    options = ProfileOptions(arms="reference", no_experiments=True)
    assert plan(options, GPU).study.experiments == ()
    assert plan(ProfileOptions(arms="reference"), CPU).study.experiments == ()


EVERYTHING = ProfileOptions(
    model="qwen3-30b-a3b",
    layer=3,
    arms="reference,fused:pdl=stock",
    requests=2,
    draft_tokens=3,
    context=100,
    page_size=32,
    tp=2,
    shard_shaped=True,
    routing=Routing.CORRELATED,
    dtype=DType.BFLOAT16,
    weights=DType.FLOAT8_E4M3,
    samples=400,
    passes=12,
    captures=2,
    seed=7,
    time_budget=5.0,
    no_experiments=True,
    output=Path("here"),
)


def test_every_option_of_the_layer_reaches_it_and_its_draft() -> None:
    """What the user says replaces each default."""
    planned = plan(EVERYTHING, GPU)
    assert planned.study.spec == LayerSpec(
        model=preset("qwen3-30b-a3b"),
        layer=3,
        dtype=DType.BFLOAT16,
        weight_dtype=DType.FLOAT8_E4M3,
        requests=2,
        draft_tokens=3,
        context=100,
        page_size=32,
        tp=2,
        shard_shaped=True,
        routing=Routing.CORRELATED,
    )
    assert planned.study.draft == DraftSpec(
        model="qwen3-30b-a3b",
        vocab_size=151_936,
        weight_dtype=DType.FLOAT8_E4M3,
        requests=2,
        tokens=3,
        tp=2,
        shard_shaped=True,
    )


def test_every_option_of_the_study_reaches_it() -> None:
    """Arms with their switches, counts, seed and time."""
    planned = plan(EVERYTHING, GPU)
    assert planned.output == Path("here")
    assert planned.study == Study(
        spec=planned.study.spec,
        draft=planned.study.draft,
        arms=(
            Arm(backend="reference"),
            Arm(backend="fused", switches={"pdl": "stock"}),
        ),
        seed=7,
        samples=400,
        lengths=(4, 8, 12),
        captures=2,
        time_budget_s=5.0,
    )


@pytest.mark.parametrize(
    "options",
    [
        ProfileOptions(arms="reference", no_draft=True),
        ProfileOptions(arms="reference", draft_tokens=0),
    ],
)
def test_there_is_no_draft_where_none_is_wanted_or_to_be_made(
    options: ProfileOptions,
) -> None:
    """It is left out by a flag, and of a step without draft tokens."""
    assert plan(options, CPU).study.draft is None


def test_a_dtype_is_that_of_the_weights_too() -> None:
    """Weights follow the activations unless they are told not to."""
    spec = plan(ProfileOptions(arms="a", dtype=DType.BFLOAT16), CPU).spec
    assert spec.weight_dtype is DType.BFLOAT16


def test_all_that_is_out_of_range_is_told_at_once() -> None:
    """Every bad number is named in the same line."""
    assert refusal(ProfileOptions(samples=0, captures=0, passes=2, time_budget=0)) == (
        "--samples is 0, and must be at least 1; "
        "--captures is 0, and must be at least 1; "
        "--passes is 2, and must be at least 3; "
        "--time-budget is 0, and must be a number of seconds above 0"
    )


@pytest.mark.parametrize("seconds", [inf, -inf, nan, -1.0])
def test_a_budget_that_is_no_time_is_refused(seconds: float) -> None:
    """It would end up in run.json, where no reader takes it."""
    assert refusal(ProfileOptions(time_budget=seconds)) == (
        f"--time-budget is {seconds:g}, and must be a number of seconds above 0"
    )


def test_ranks_need_gpus_or_a_shard() -> None:
    """Several real ranks cannot be measured yet; the shard is offered."""
    assert refusal(ProfileOptions(tp=4)) == (
        "--tp 4 needs 4 GPUs, which cannot be measured yet; "
        "add --shard-shaped to measure one rank's slice on one GPU"
    )


def test_an_unknown_model_lists_the_presets() -> None:
    """A name that is neither preset nor folder gets the names there are."""
    message = refusal(ProfileOptions(model="qwen3-30b-a3"))
    assert "did you mean qwen3-30b-a3b?" in message


def test_a_preset_wins_over_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called like a preset is only read when written as a path."""
    (tmp_path / "tiny-moe").mkdir()
    monkeypatch.chdir(tmp_path)
    planned = plan(ProfileOptions(model="tiny-moe", arms="a"), CPU)
    assert planned.model_folder is None
    assert "config.json" in refusal(ProfileOptions(model="./tiny-moe", arms="a"))


def test_a_missing_model_folder_is_named() -> None:
    """A path that leads nowhere is named in the error."""
    assert "nowhere/model" in refusal(ProfileOptions(model="nowhere/model"))


def test_a_layer_out_of_range_names_the_range() -> None:
    """Layers are counted from 0, and the error says how many there are."""
    assert refusal(ProfileOptions(layer=4, arms="a")) == (
        "layer 4 is out of range: tiny-moe has layers 0 to 3"
    )


def test_backends_that_fit_join_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --arms every fitting backend is measured, the others with reasons."""
    reference = registry.load("reference")

    def load(name: str) -> BackendSpec:
        if name == "broken":
            msg = "backend broken cannot be imported"
            raise BackendError(msg)
        covers = {} if name == "elsewhere" else reference.covers
        left = dict.fromkeys(Region, "runs at most 4 rows, not 6")
        return BackendSpec(
            name=name,
            api_version=reference.api_version,
            summary="",
            covers=covers,
            build=reference.build,
            build_draft=reference.build_draft,
            declines=lambda _: left if name == "leaving" else {},
            idle_in_draft=lambda *_: {"early": "few"} if name == "silly" else {},
        )

    names = ("broken", "elsewhere", "fits", "leaving", "reference", "silly")
    monkeypatch.setattr(registry, "discover", lambda: dict.fromkeys(names))
    monkeypatch.setattr(registry, "load", load)
    planned = plan(ProfileOptions(), CPU)
    assert planned.study.arms == (Arm(backend="reference"), Arm(backend="fits"))
    assert planned.left_out == (
        "broken: backend broken cannot be imported",
        "elsewhere: covers , not qwen3_moe",
        "leaving: runs at most 4 rows, not 6",
        (
            "silly: cannot be checked (idle_in_draft names early, which is no switch "
            "of it); tell its author"
        ),
    )
