"""The tracks of a Perfetto trace: which process, thread, device and stream each is."""

import re
from dataclasses import dataclass
from typing import Any, Final

from layerscope.ingest.perfetto_sequence import text

_STREAM: Final = re.compile(r'STREAM\s*\[?\s*"?\s*(\d+)', re.IGNORECASE)
_QUEUE: Final = re.compile(r"QUEUE\s*\[?\s*(\d+)", re.IGNORECASE)
_COMPUTE: Final = re.compile(r"(?:COMPUTE|AGENT|GPU)\D{0,20}(\d+)", re.IGNORECASE)
_THREAD: Final = re.compile(r"THREAD\s+\d+\s+\((\d+)\)", re.IGNORECASE)
_HIGHEST: Final = 64  # tracks within tracks


@dataclass(slots=True)
class Track:
    """One row of the picture; what nothing tells is None."""

    number: int
    """In the order of first mention."""

    name: str = ""
    parent: int | None = None
    process: int | None = None
    thread: int | None = None

    def numbers_in_name(self) -> dict[str, int | None]:
        """Device, queue and stream, as rocprofv3 writes them into names of tracks."""
        patterns = {"device": _COMPUTE, "queue": _QUEUE, "stream": _STREAM}
        return {key: _number(each, self.name) for key, each in patterns.items()}


class Tracks:
    """All tracks, by the numbers that events have for them."""

    def __init__(self) -> None:
        """Begin without any."""
        self._tracks: dict[int, Track] = {}

    def track(self, uuid: int) -> Track:
        """The track of that number, described or not."""
        return self._tracks.setdefault(uuid, Track(len(self._tracks)))

    def describe(self, descriptor: Any) -> None:  # noqa: ANN401 (the library has no types)
        """Take what a descriptor tells; what it leaves out stays as it was."""
        track = self.track(descriptor.uuid)
        name = descriptor.name or descriptor.static_name
        track.name = text(name) if name else track.name
        if descriptor.HasField("parent_uuid"):
            track.parent = descriptor.parent_uuid
        if descriptor.HasField("process"):
            track.process = descriptor.process.pid
        if descriptor.HasField("thread"):
            track.process = descriptor.thread.pid
            track.thread = descriptor.thread.tid
        elif track.thread is None:
            track.thread = _number(_THREAD, track.name)

    def process(self, track: Track) -> int | None:
        """The process that `track`, or one that it lies in, belongs to."""
        for _ in range(_HIGHEST):
            if track.process is not None or track.parent not in self._tracks:
                return track.process
            track = self._tracks[track.parent]
        return None


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.search(name)
    return int(found[1][:18]) if found else None
