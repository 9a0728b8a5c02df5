"""Every exception layerscope raises on purpose, and the exit code each one means.

```
LayerscopeError            exit 1
├── InputError             exit 2   a file, name or flag the user gave is wrong
├── RecordError            exit 1   a run could not be written or read back whole
├── MeasurementError       exit 1   this machine cannot measure what was asked
│   └── DeviceLostError    exit 1   an edited graph has failed on the device
└── BackendError           exit 1   a backend refused, failed to build, or was wrong
```

The message is one line: the cause, then what to do. Only these lose their traceback
on the command line; anything else is a bug and keeps it. Some codes are no errors: 1
of a self-test that failed and of a doctor for whom nothing can be measured here, 3 of a
gate that has found a regression, 4 of one that cannot tell, and 130 of Ctrl-C.
"""

EXIT_OK = 0
EXIT_REGRESSION = 3
EXIT_UNKNOWN = 4
EXIT_INTERRUPTED = 130


def describe(error: BaseException) -> str:
    """What went wrong, in one line.

    The message of layerscope's own errors; of any other exception its type and the
    first line of its text, such as ``KeyError: 'gate'``.
    """
    if isinstance(error, LayerscopeError):
        return str(error)
    first, *_ = [*str(error).splitlines(), ""]
    return f"{type(error).__name__}: {first}".removesuffix(": ")


class LayerscopeError(Exception):
    """Base of all errors that are reported as one line.

    Attributes:
        exit_code: what the command line returns for it.
    """

    exit_code = 1


class InputError(LayerscopeError):
    """A file, name or flag given by the user cannot be used."""

    exit_code = 2


class RecordError(LayerscopeError):
    """A run on disk could not be written, or is not whole."""


class MeasurementError(LayerscopeError):
    """The device, driver or profiler here cannot measure what was asked."""


class DeviceLostError(MeasurementError):
    """An edited graph failed on the device, which this process can use no more."""


class BackendError(LayerscopeError):
    """A backend refused the problem, failed to build, or computed wrong numbers."""
