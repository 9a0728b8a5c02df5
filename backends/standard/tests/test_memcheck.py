from pathlib import Path

from backends.standard.tests.emulation import KERNELS
from layerscope_standard import compiling
from tools.memcheck_logs import wrong_logs

LOGS = Path(__file__).parents[1] / "memcheck"
CODE = Path(compiling.__file__).parent / "code"


def test_every_kernel_has_a_clean_log_of_its_memory() -> None:
    """As it is now; ``python -m tools.memcheck standard`` writes them, on a GPU."""
    assert wrong_logs(LOGS, CODE, KERNELS) == []
