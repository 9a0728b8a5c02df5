import msgspec
import polars as pl
import pytest

from layerscope.analyze.early_starts import EarlyStart, Hindrance, early_starts
from layerscope.environment import DeviceFacts
from tests import handmade

DEVICE = handmade.environment().device
NODES = [1, 4, 7, 10]  # `project` of every pass
BEHIND = [2, 5, 8, 11]  # `experts`, which start 500 ns after it has ended


def kernels(**before: int) -> pl.DataFrame:
    """The fused arm of the hand-made run, with `before` of what precedes `experts`."""
    is_before = pl.col("name") == "project"
    return (
        handmade.kernels()
        .filter(pl.col("arm") == "fused")
        .with_columns(
            pl.when(is_before).then(value).otherwise(pl.col(name)).alias(name)
            for name, value in before.items()
        )
    )


def test_a_kernel_that_starts_early_has_its_lead() -> None:
    """`project` starts 1,000 ns before `attend` has ended, once in every pass."""
    assert early_starts(kernels(), NODES, DEVICE) == (
        EarlyStart(
            region="o_proj_all_reduce",
            kernel="project",
            before="attend",
            nodes=1.0,
            lead_ns=1_000.0,
            hindrance=Hindrance.NONE,
        ),
    )


@pytest.mark.parametrize(
    ("launch", "device", "hindrance", "lacks"),
    [
        ({}, DEVICE, Hindrance.TRIGGER, ()),
        ({"registers": 255}, DEVICE, Hindrance.ROOM, ("registers",)),
        (
            {"dynamic_shared_bytes": 227 * 1024},
            DEVICE,
            Hindrance.ROOM,
            ("shared memory",),
        ),
        (
            {},
            msgspec.structs.replace(DEVICE, architecture="gfx950"),
            Hindrance.NOT_KNOWN,
            (),
        ),
    ],
)
def test_why_a_kernel_did_not_start_early(
    launch: dict[str, int],
    device: DeviceFacts,
    hindrance: Hindrance,
    lacks: tuple[str, ...],
) -> None:
    """Beside 256 threads of 64 registers there is room, so the trigger is late.

    Of 255 registers, 256 threads hold 65,536, which is all.
    """
    (found,) = early_starts(kernels(**launch), BEHIND, device)
    assert found == EarlyStart(
        region="moe",
        kernel="experts",
        before="project",
        nodes=1.0,
        lead_ns=0.0,
        hindrance=hindrance,
        lacks=lacks,
    )


def test_a_launch_that_was_not_recorded_tells_nothing() -> None:
    """Without its grid, why a kernel waits is not known."""
    blind = kernels().with_columns(registers=pl.lit(None, pl.Int64))
    (found,) = early_starts(blind, BEHIND, DEVICE)
    assert found.hindrance is Hindrance.NOT_KNOWN


def test_without_programmatic_edges_there_are_none() -> None:
    """A chain of full edges has nothing that could start early."""
    assert early_starts(kernels(), [], DEVICE) == ()
    assert early_starts(kernels().clear(), NODES, DEVICE) == ()
