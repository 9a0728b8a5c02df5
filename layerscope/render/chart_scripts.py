"""The scripts that draw charts in a browser, from vl-convert, without a network."""

import subprocess
import sys
from typing import Final, Self

from layerscope.errors import MeasurementError

_PROGRAM: Final = (
    "import sys, vl_convert\n"
    "sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"
)


class ChartScripts:
    """Vega, Vega-Lite and Vega-Embed in one text, bundled while others work.

    Bundling takes longer than a second and holds Python's lock all the time, so it is
    done in a process of its own.
    """

    def __init__(self) -> None:
        """Start bundling."""
        self._process = subprocess.Popen(  # noqa: S603 (this Python, a fixed program)
            [sys.executable, "-c", _PROGRAM],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        """Itself; leaving the block ends the process, whatever has happened."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process where it still runs."""
        self._process.kill()
        self._process.communicate()

    def text(self) -> str:
        """The scripts, once they are there; safe within a ``script`` element.

        Raises:
            MeasurementError: vl-convert has failed.
        """
        scripts, complaint = self._process.communicate()
        if self._process.returncode:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            msg = f"vl-convert cannot bundle its scripts ({last}); install it anew"
            raise MeasurementError(msg)
        return scripts.decode().replace("</script", r"<\/script")
