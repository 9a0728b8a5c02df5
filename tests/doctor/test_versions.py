import pytest

from layerscope.doctor.versions import (
    Version,
    cuda_version,
    first_line,
    installed,
    version_of,
    written,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13.0.85", (13, 0)),
        ("2.13.0+cpu", (2, 13)),
        ("12.10", (12, 10)),
        ("580", None),
        ("", None),
        ("unknown", None),
    ],
)
def test_two_numbers_of_a_version_count(text: str, expected: Version | None) -> None:
    """They are compared as numbers, so 12.10 is above 12.9."""
    assert version_of(text) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(13000, (13, 0)), (12080, (12, 8)), (0, None)]
)
def test_cuda_numbers_its_versions(number: int, expected: Version | None) -> None:
    """1000 × major + 10 × minor; 0 is what a machine without a driver says."""
    assert cuda_version(number) == expected


def test_an_unknown_version_is_written_so() -> None:
    """A report never says None."""
    assert (written((13, 0)), written(None)) == ("13.0", "unknown")


def test_a_package_that_is_not_there_has_no_version() -> None:
    """Asking is no error."""
    assert installed("pytest")
    assert installed("layerscope-of-nobody") == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("CUDA error: busy\nadvice\n"), "CUDA error: busy"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, line: str) -> None:
    """What follows the first line is advice; an empty error is told by its class."""
    assert first_line(error) == line
