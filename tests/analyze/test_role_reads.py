from dataclasses import replace
from typing import Any

import msgspec
import pytest

from layerscope.analyze.role_reads import RoleRead, RoleReads, role_reads
from layerscope.analyze.swept import sweep_run
from layerscope.layers.draft_spec import DraftSpec
from layerscope.run import Run
from layerscope.run_header import ReadCost
from layerscope.study import CallableSpec
from tests import handmade
from tests.analyze.timelines import BASE, OTHER, Chain, Flaws, Kernel, arms_run

CURVE = [
    ReadCost(bytes=131_072, duration_ns=2_000.0),
    ReadCost(bytes=917_504, duration_ns=5_072.0),
]
"""One nanosecond for every 256 bytes more."""

QKV, CACHE, GATE_UP, DOWN = 196_608, 131_072, 786_432, 393_216
"""Bytes of the layer of `handmade`: 12 heads of 32 by 256, 512 rows of 256 bytes, and
of the six experts that a pass draws 256 by 256 and 256 by 128, in two bytes each."""

PRODUCT = Kernel("attention", "split", 3_000, gap_ns=300, role="norm+qkv")
REDUCE = Kernel("attention", "reduce", 500, gap_ns=100, role="norm+qkv", blocks=21)
ATTEND = Kernel("attention", "attend", 4_000, gap_ns=400, role="rope+attention")
UP = Kernel("moe", "up", 6_000, gap_ns=500, role="gate_up")
ACTIVATE = Kernel("moe", "activate", 1_000, gap_ns=200, role="activation")
SUM = Kernel("moe", "down", 2_000, gap_ns=350, role="down+sum")
SEARCH = Kernel("moe", "search", 700, gap_ns=50, role="search")
BARE = Kernel("moe", "bare", 900, gap_ns=50)
CHAIN = (PRODUCT, REDUCE, ATTEND, SEARCH, UP, ACTIVATE, SUM, BARE)

READ_QKV = RoleRead(
    roles=("norm+qkv",),
    kernels=2,
    required_bytes=QKV,
    duration_ns=3_500.0,
    time_ns=3_900.0,
    cold_read_ns=2_256.0,
)
READ_CACHE = RoleRead(
    roles=("rope+attention",),
    kernels=1,
    required_bytes=CACHE,
    duration_ns=4_000.0,
    time_ns=4_400.0,
    cold_read_ns=2_000.0,
)
READ_UP = RoleRead(
    roles=("gate_up",),
    kernels=1,
    required_bytes=GATE_UP,
    duration_ns=6_000.0,
    time_ns=6_500.0,
    cold_read_ns=4_560.0,
)
READ_DOWN = RoleRead(
    roles=("down+sum",),
    kernels=1,
    required_bytes=DOWN,
    duration_ns=2_000.0,
    time_ns=2_350.0,
    cold_read_ns=3_024.0,
)


def found(run: Run, arm: str = BASE) -> RoleReads | None:
    """What is found of an arm of `run`."""
    return role_reads(sweep_run(run), arm)


def planted(chain: Chain, **changes: Any) -> Run:  # noqa: ANN401 (as for `arms_run`)
    """A run of two arms with the kernels of `chain`, and a curve of reads."""
    return arms_run(chain, chain, **({"reads": CURVE} | changes))


def draft(**changes: Any) -> Run:  # noqa: ANN401 (any field of the header)
    """A draft of two tokens: by a kernel each, and by one for both."""
    spec = DraftSpec(model="paper", vocab_size=4_096, rank=16, tokens=2)
    first = Kernel("draft", "token", 3_000, gap_ns=200, role="token_1")
    second = Kernel("draft", "token", 2_500, gap_ns=200, role="token_2")
    both = Kernel("draft", "all", 4_000, gap_ns=300, role="tokens")
    study = msgspec.structs.replace(handmade.study(), spec=spec)
    values: dict[str, Any] = {"study": study, "distinct_experts": [], "bytes": []}
    return arms_run((first, second), (both,), **(values | changes))


def test_kernels_of_a_role_read_its_operands() -> None:
    """Two kernels of one role together; no role, or one that reads nothing, is none."""
    expected = (READ_QKV, READ_CACHE, READ_UP, READ_DOWN)
    assert found(planted(CHAIN)) == RoleReads(expected, has_waits=False)


def test_odd_passes_change_no_time() -> None:
    """Late passes are outweighed, and those that lack a record are left out."""
    flaws = Flaws(outliers=frozenset({(BASE, 0)}), lost=frozenset({(BASE, 1)}))
    assert found(planted(CHAIN, flaws=flaws)) == found(planted(CHAIN))


def test_roles_with_a_part_in_common_are_one() -> None:
    """Which of their kernels reads how much is not known; bytes count once."""
    late = Kernel("moe", "up", 2_000, gap_ns=100, role="gate_up+activation")
    assert found(planted((UP, SUM, late))) == RoleReads(
        (
            RoleRead(
                roles=("gate_up", "gate_up+activation"),
                kernels=2,
                required_bytes=GATE_UP,
                duration_ns=8_000.0,
                time_ns=8_600.0,
                cold_read_ns=4_560.0,
            ),
            READ_DOWN,
        ),
        has_waits=False,
    )


def test_a_role_of_several_parts_reads_all_they_do() -> None:
    """786,432 and 393,216 bytes; a part in common that reads nothing joins no roles."""
    whole = UP._replace(role="gate_up+sum+down")
    other = ATTEND._replace(role="attention+sum")
    assert found(planted((other, whole))) == RoleReads(
        (
            replace(READ_CACHE, roles=("attention+sum",)),
            replace(
                READ_UP,
                roles=("gate_up+sum+down",),
                required_bytes=GATE_UP + DOWN,
                cold_read_ns=6_096.0,
            ),
        ),
        has_waits=False,
    )


def test_without_a_serial_twin_times_hold_waits() -> None:
    """A kernel that starts 1,000 ns early has them in its duration; no cost is less."""
    early = ATTEND._replace(early_ns=1_000)
    run = planted((UP, early), twins=None)
    assert found(run) == RoleReads(
        (READ_UP, replace(READ_CACHE, duration_ns=5_000.0, time_ns=5_000.0)),
        has_waits=True,
    )


def test_a_graph_that_is_serial_is_its_own_twin() -> None:
    """Its records are the twin's, and what the profiler adds, 150 ns, is subtracted."""
    assert found(planted((UP,), twins="same")) == RoleReads(
        (replace(READ_UP, time_ns=6_350.0),), has_waits=False
    )


def test_tokens_of_a_draft() -> None:
    """The curve is that of its layer's run: 131,072 bytes of w2, 16,384 of logits."""
    run = sweep_run(draft())
    token = RoleRead(
        roles=("token_1",),
        kernels=1,
        required_bytes=147_456,
        duration_ns=3_000.0,
        time_ns=3_200.0,
        cold_read_ns=2_064.0,
    )
    second = replace(token, roles=("token_2",), duration_ns=2_500.0, time_ns=2_700.0)
    both = RoleRead(
        roles=("tokens",),
        kernels=1,
        required_bytes=163_840,
        duration_ns=4_000.0,
        time_ns=4_300.0,
        cold_read_ns=2_128.0,
    )
    assert role_reads(run, BASE, CURVE) == RoleReads((token, second), has_waits=False)
    assert role_reads(run, OTHER, CURVE) == RoleReads((both,), has_waits=False)
    assert role_reads(run, BASE) is None


@pytest.mark.parametrize(
    ("chain", "changes"),
    [
        (CHAIN, {"reads": []}),
        (CHAIN, {"reads": CURVE[:1]}),
        (CHAIN, {"distinct_experts": []}),
        ((SEARCH, ACTIVATE, BARE), {}),
        (
            CHAIN,
            {
                "study": msgspec.structs.replace(
                    handmade.study(), spec=CallableSpec(inputs=(), tolerance=0.1)
                )
            },
        ),
    ],
)
def test_nothing_is_guessed(chain: Chain, changes: dict[str, Any]) -> None:
    """Without a curve, known experts, such roles, or a spec that fixes bytes."""
    assert found(planted(chain, **changes)) is None
