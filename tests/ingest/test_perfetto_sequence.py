from layerscope.ingest.columns import Names
from layerscope.ingest.perfetto_sequence import Sequence
from layerscope.trace import TraceLog
from tests.ingest.perfetto_packets import CLEARED, NEEDED, PacketFile


def test_what_was_lost_is_not_guessed() -> None:
    """Packets that need a state are left out until the writer begins anew."""
    file, sequence = PacketFile(cleared=False), Sequence(Names(TraceLog()))
    assert not sequence.begin(file.packet(sequence_flags=NEEDED))
    assert sequence.begin(file.packet(sequence_flags=CLEARED))
    assert sequence.begin(file.packet(sequence_flags=NEEDED))
    after_loss = file.packet(sequence_flags=NEEDED, previous_packet_dropped=1)
    assert not sequence.begin(after_loss)
    assert sequence.begin(file.packet(sequence_flags=0))


def test_texts_by_number() -> None:
    """Names, categories and arguments are said once, and forgotten at a new begin."""
    names = Names(TraceLog())
    file, sequence = PacketFile(cleared=False), Sequence(names)
    told = file.packet(sequence_flags=CLEARED)
    told.interned_data.event_names.add(iid=1, name="gemm")
    told.interned_data.event_categories.add(iid=2, name="kernel_dispatch")
    told.interned_data.debug_annotation_names.add(iid=3, name="queue")
    told.interned_data.debug_annotation_string_values.add(iid=4, str=b"main")
    assert sequence.begin(told)
    event = file.packet().track_event
    event.name_iid = 1
    event.category_iids.append(2)
    event.debug_annotations.add(name_iid=3, string_value_iid=4)
    event.debug_annotations.add(name="size", int_value=-5)
    event.debug_annotations.add(name_iid=9, int_value=1)
    event.debug_annotations.add(name="on", bool_value=True)
    assert sequence.name(event) == names.number("gemm")
    assert sequence.category(event) == "kernel_dispatch"
    assert sequence.arguments(event.debug_annotations) == {"queue": "main", "size": -5}
    assert sequence.begin(file.packet(sequence_flags=CLEARED))
    assert (sequence.name(event), sequence.category(event)) == (None, "")


def test_arguments_within_arguments() -> None:
    """They are read three deep: files may nest them without end."""
    file, sequence = PacketFile(), Sequence(Names(TraceLog()))
    deepest = annotation = file.packet().track_event.debug_annotations.add(name="a")
    for name in "bcde":
        deepest = deepest.dict_entries.add(name=name)
    deepest.int_value = 1
    assert sequence.arguments([annotation]) == {"a": {"b": {"c": {}}}}


def test_defaults() -> None:
    """A clock and a track hold for events that name none; the boot time is first."""
    file, sequence = PacketFile(cleared=False), Sequence(Names(TraceLog()))
    event = file.packet()
    assert (sequence.clock(event), sequence.track(event.track_event)) == (6, None)
    told = file.packet(sequence_flags=CLEARED)
    told.trace_packet_defaults.timestamp_clock_id = 64
    told.trace_packet_defaults.track_event_defaults.track_uuid = 5
    assert sequence.begin(told)
    assert (sequence.clock(event), sequence.track(event.track_event)) == (64, 5)
    event.timestamp_clock_id, event.track_event.track_uuid = 3, 8
    assert (sequence.clock(event), sequence.track(event.track_event)) == (3, 8)
