"""How a run ends: whole, or partial with the reason, whatever stopped it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from layerscope.errors import (
    InputError,
    LayerscopeError,
    MeasurementError,
    RecordError,
)
from layerscope.graphs.memory import is_out_of_memory, out_of_memory
from layerscope.run import FILES, STAMPS_FILE, RunWriter, load


@contextmanager
def partial_on_failure(writer: RunWriter) -> Iterator[None]:
    """Leave a readable partial run that says why, whatever stops the study."""
    reason = "an unexpected error"  # a bug: it keeps its traceback
    try:
        yield
        reason = ""
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = out_of_memory(error)
        raise MeasurementError(reason) from error
    except LayerscopeError as error:
        reason = str(error)
        raise
    finally:
        if reason:
            _end(writer, reason)


def _end(writer: RunWriter, reason: str) -> None:
    """Write what there is; a folder without one sample tells nothing and goes."""
    # A full disk is reported by the error that is already on its way.
    with suppress(RecordError):
        writer.finish("partial", reason)
    with suppress(InputError, RecordError):  # then not even the header was written
        if load(writer.path).samples.is_empty():
            for name in (*FILES, STAMPS_FILE):
                (writer.path / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty: samples are kept there
        writer.path.rmdir()
