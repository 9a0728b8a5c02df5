from types import SimpleNamespace
from typing import Any

from layerscope.ingest.perfetto_tracks import Track, Tracks


def described(uuid: int, name: str = "", **told: Any) -> Any:  # noqa: ANN401
    """A descriptor, as far as it is read."""
    fields = {"uuid": uuid, "name": name, "static_name": "", "parent_uuid": 0} | told
    return SimpleNamespace(**fields, HasField=told.__contains__)


def test_what_names_tell() -> None:
    """Device, queue and stream, in both ways in which rocprofv3 writes them."""
    compute = Track(0, "COMPUTE AGENT [4] QUEUE [2] (GPU)")
    assert compute.numbers_in_name() == {"device": 4, "queue": 2, "stream": None}
    stream = Track(0, "STREAM [7]")
    assert stream.numbers_in_name() == {"device": None, "queue": None, "stream": 7}


def test_threads() -> None:
    """A thread is described, or else it is in the name of its track."""
    tracks = Tracks()
    tracks.describe(described(1, "THREAD 0 (4711)"))
    tracks.describe(described(2, "main", thread=SimpleNamespace(pid=10, tid=12)))
    found = [(track.process, track.thread) for track in map(tracks.track, (1, 2))]
    assert found == [(None, 4_711), (10, 12)]


def test_a_process_is_that_of_the_track_around() -> None:
    """However deep a track lies; tracks within themselves are of none."""
    tracks = Tracks()
    tracks.describe(described(1, process=SimpleNamespace(pid=99)))
    tracks.describe(described(2, parent_uuid=1))
    tracks.describe(described(3, parent_uuid=2))
    tracks.describe(described(4, parent_uuid=5))
    tracks.describe(described(5, parent_uuid=4))
    assert [tracks.process(tracks.track(uuid)) for uuid in (3, 4)] == [99, None]
    assert [tracks.track(uuid).number for uuid in (1, 3, 6)] == [0, 2, 5]


def test_a_second_description_adds() -> None:
    """What it leaves out stays as it was."""
    tracks = Tracks()
    tracks.describe(described(1, "STREAM [7]", process=SimpleNamespace(pid=99)))
    tracks.describe(described(1, parent_uuid=8))
    track = tracks.track(1)
    assert (track.name, track.process, track.parent) == ("STREAM [7]", 99, 8)
