from itertools import pairwise

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerscope.layers.routing import (
    REJECT,
    distinct_experts,
    expert_plan,
    is_planned,
    routing_bias,
)
from layerscope.layers.spec import Family, LayerSpec, ModelShape, Routing


@st.composite
def specs(draw: st.DrawFn) -> LayerSpec:
    """Specs of any number of experts, rows and requests, and either routing."""
    experts = draw(st.integers(1, 12))
    model = ModelShape(
        name="routed",
        family=Family.QWEN3_MOE,
        layers=1,
        hidden_size=8,
        query_heads=1,
        kv_heads=1,
        head_dim=8,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        experts=experts,
        experts_per_token=draw(st.integers(1, experts)),
        expert_size=8,
    )
    return LayerSpec(
        model=model,
        requests=draw(st.integers(1, 3)),
        draft_tokens=draw(st.integers(0, 4)),
        routing=draw(st.sampled_from(Routing)),
    )


@given(specs(), st.integers(0, 9))
def test_a_row_has_distinct_experts(spec: LayerSpec, seed: int) -> None:
    """Every row chooses exactly top_k different experts that exist."""
    plan = expert_plan(spec, passes=2, steps=2, seed=seed)
    top_k = spec.model.experts_per_token
    assert plan.shape == (2, 2, spec.rows, top_k)
    assert all(len(set(row)) == top_k for row in plan.flatten(0, 2).tolist())
    assert int(plan.min()) >= 0
    assert int(plan.max()) < spec.model.experts


@given(specs(), st.integers(0, 9))
def test_correlated_draft_rows_keep_half(spec: LayerSpec, seed: int) -> None:
    """A draft row has top_k // 2 experts of the row before, more only if it must."""
    spec = msgspec.structs.replace(spec, routing=Routing.CORRELATED)
    plan = expert_plan(spec, passes=1, steps=1, seed=seed)
    top_k, experts = spec.model.experts_per_token, spec.model.experts
    shared = max(top_k // 2, 2 * top_k - experts)
    for request in plan.view(spec.requests, -1, top_k).tolist():
        for before, row in pairwise(request):
            assert len(set(before) & set(row)) == shared


def test_uniform_rows_are_independent(moe: ModelShape) -> None:
    """Uniform routing spreads over all experts; correlated needs fewer at a time."""
    model = msgspec.structs.replace(moe, experts=64, experts_per_token=8)
    means = []
    for routing in Routing:
        spec = LayerSpec(model=model, draft_tokens=5, routing=routing)
        plan = expert_plan(spec, passes=20, steps=20, seed=0)
        counts = torch.tensor(distinct_experts(plan)).float()
        means.append(float(counts.mean()))
    # E distinct of N experts in r rows of k: N (1 - (1 - k / N) ** r)
    assert means[0] == pytest.approx(64 * (1 - (1 - 8 / 64) ** 6), rel=0.01)
    assert means[1] < 0.85 * means[0]


def test_a_plan_does_not_depend_on_how_much_is_planned(moe: ModelShape) -> None:
    """More passes and steps leave the plan of the first ones as it was."""
    spec = LayerSpec(model=moe, routing=Routing.CORRELATED)
    small = expert_plan(spec, passes=2, steps=1, seed=3)
    large = expert_plan(spec, passes=3, steps=4, seed=3)
    assert torch.equal(large[:1, :2], small)
    assert not torch.equal(large[0, 0], large[1, 0])
    assert not torch.equal(large[0, 0], large[0, 1])
    assert not torch.equal(expert_plan(spec, passes=2, steps=1, seed=4), small)


def test_the_bias_rejects_all_but_the_plan() -> None:
    """Planned experts get 0, the others a bias that no logit makes up for."""
    bias = routing_bias(torch.tensor([[[[2, 0]]]]), 4, torch.device("cpu"))
    assert bias.tolist() == [[[[0.0, REJECT, 0.0, REJECT]]]]
    assert torch.tensor(REJECT).exp() == 0


def test_distinct_experts_are_counted_over_rows() -> None:
    """Experts that several rows chose count once a pass."""
    plan = torch.tensor([[[[0, 1], [1, 0]], [[0, 1], [2, 3]]]])
    assert distinct_experts(plan) == [[2, 4]]


def test_experts_are_those_planned_in_any_order() -> None:
    """Row by row: the experts of another row are others."""
    planned = torch.tensor([[4, 1], [0, 2]])
    assert is_planned(torch.tensor([[1, 4], [2, 0]], dtype=torch.int32), planned)
    assert not is_planned(torch.tensor([[0, 2], [4, 1]]), planned)
    assert not is_planned(torch.tensor([[1, 1], [2, 0]]), planned)
