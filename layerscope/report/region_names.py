"""What people read where programs read the name of a region."""

from typing import Final

from layerscope.regions import Region

_NAMES: Final[dict[str, str]] = {
    Region.O_PROJ_ALL_REDUCE.value: "o-proj + all-reduce",
    Region.MOE.value: "MoE",
    Region.MLP.value: "MLP",
    Region.MHC.value: "mHC",
}


def region_name(region: str) -> str:
    """What people call `region`; names of foreign code stay as they are."""
    return _NAMES.get(region, region)
