"""Arms whose kernels note when their blocks work: ``--stamps``."""

import msgspec

from layerscope import registry
from layerscope.errors import InputError
from layerscope.study import Study


def with_stamps(study: Study) -> Study:
    """`study` with every arm once more, with stamps, where its backend has some.

    These are builds of their own, which are timed beside the others: what the stamps
    cost is the difference.

    Raises:
        InputError: no backend of the study has stamps; lists those asked.
        BackendError: a backend cannot be loaded.
    """
    stamped = tuple(
        msgspec.structs.replace(arm, stamps=True)
        for arm in study.arms
        if registry.load(arm.backend).stamps
    )
    if not stamped:
        asked = ", ".join(dict.fromkeys(arm.backend for arm in study.arms))
        msg = f"--stamps: no arm has stamps ({asked}); leave it out"
        raise InputError(msg)
    return msgspec.structs.replace(study, stamp_arms=stamped)
