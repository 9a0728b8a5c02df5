"""The bench of the tests below: the GPU."""

import pytest
import torch

from backends.standard.tests.bench import Bench
from layerscope_standard.backend import make_workshop


@pytest.fixture(params=["stock"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A GPU; kernels are launched as the switch ``pdl`` says."""
    device = torch.device("cuda", torch.cuda.current_device())
    return Bench(device, lambda: make_workshop(device, request.param))
