import pytest

from layerscope.errors import BackendError, describe


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (BackendError("it declined; leave it out"), "it declined; leave it out"),
        (KeyError("gate"), "KeyError: 'gate'"),
        (RuntimeError("CUDA error\nCompile with …"), "RuntimeError: CUDA error"),
        (AssertionError(), "AssertionError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_what_went_wrong_is_one_line(error: BaseException, line: str) -> None:
    """Errors of layerscope speak for themselves, others are named by their type."""
    assert describe(error) == line
