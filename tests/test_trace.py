from layerscope.trace import TraceLog, TraceNote


def test_equal_notes_are_counted_together() -> None:
    """What was noted often is one note; what did not happen is none."""
    log = TraceLog()
    log.add("dropped", "kernels", 2)
    log.add("repaired", "kernels")
    log.add("dropped", "kernels", 3)
    log.add("untrusted", "replays", 0)
    assert log.notes() == (
        TraceNote(kind="dropped", what="kernels", count=5),
        TraceNote(kind="repaired", what="kernels", count=1),
    )


def test_the_gravest_kind_comes_first() -> None:
    """Notes are in the order of their kinds, then of their first mention."""
    log = TraceLog()
    for kind, what in (("repaired", "a"), ("doubted", "b"), ("repaired", "c")):
        log.add(kind, what)  # type: ignore[arg-type]
    log.add("untrusted", "d")
    assert [note.what for note in log.notes()] == ["d", "b", "a", "c"]


def test_what_a_note_is_about() -> None:
    """A note keeps what it takes away, and notes that differ in it are two."""
    log = TraceLog()
    log.add("untrusted", "replays", 3, about="kernels missing")
    log.add("untrusted", "replays", 3)
    told, other = log.notes()
    assert (told.about, other.about) == ("kernels missing", "")
