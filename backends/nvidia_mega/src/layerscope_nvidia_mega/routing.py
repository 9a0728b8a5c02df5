"""Routing in one kernel, by a bitmap of rows for each expert."""

from typing import Final

from layerscope_standard.experts import MOST_ROWS, Experts, Routing
from layerscope_standard.kernels import Kernel, Operation

PACKAGE: Final = "layerscope_nvidia_mega"
ROLE: Final = "top_k+align"

_LANES: Final = 32


def operations(experts: Experts, index: int) -> list[Operation]:
    """The kernels of the region of pass `index`, with one for top-k and alignment.

    As those of `Experts.operations` where nothing is routed.
    """
    if experts.routing is None:
        return experts.operations(index)
    return [
        experts.router(experts.routing, index),
        route(experts, experts.routing, index),
        *experts.after_routing(index),
    ]


def route(experts: Experts, routing: Routing, index: int) -> Operation:
    """Write the chosen experts of pass `index`, their weights, and the table.

    Raises:
        ValueError: the problem has more rows than a mask has bits for.
    """
    spec = experts.problem.spec
    model = spec.model
    if spec.rows > MOST_ROWS:
        msg = f"a mask has {MOST_ROWS} rows, not {spec.rows}"
        raise ValueError(msg)
    return experts.workshop.operation(
        ROLE,
        Kernel(
            "bitmap",
            "route",
            _LANES * spec.rows,
            (
                ("LANE_EXPERTS", -(-model.experts // _LANES)),
                ("SPLITS", routing.router.splits),
            ),
            PACKAGE,
        ),
        (1, 1, 1),
        (
            routing.router.parts,
            experts.bias(index),
            routing.ids[index],
            experts.row_weights,
            experts.table,
            model.experts,
            experts.top_k,
            int(model.normalize_top_k),
        ),
    )
