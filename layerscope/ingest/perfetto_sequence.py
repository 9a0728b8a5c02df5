"""What holds from one packet of a sequence to the next: texts by number, and defaults.

https://perfetto.dev/docs/design-docs/protozero and the comments of trace_packet.proto:
a writer says a text once and then its number, until it clears its state.
"""

from collections.abc import Iterable
from typing import Any, Final

from layerscope.ingest.columns import Names, whole
from layerscope.ingest.perfetto_clocks import BOOTTIME, OwnClock

CLEARED: Final = 1  # TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED: Final = 2  # TracePacket.SEQ_NEEDS_INCREMENTAL_STATE

_DICTS: Final = 3  # how deep arguments within arguments are read


def text(value: str | bytes) -> str:
    """A text; the library gives bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


class Sequence:
    """The state of one writer."""

    def __init__(self, names: Names) -> None:
        """Nothing has been said; `names` keeps all texts."""
        self._names = names
        self.clocks: dict[int, OwnClock] = {}
        """Clocks of its own."""

        self._is_known = False
        self._forget()

    def _forget(self) -> None:
        self._events: dict[int, int] = {}  # numbers of `Names`
        self._categories: dict[int, str] = {}
        self._stages: dict[int, tuple[int, int]] = {}
        self.contexts: dict[int, int] = {}
        """APIs of contexts on GPUs."""

        self._arguments: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._clock = 0
        self._track: int | None = None

    def begin(self, packet: Any) -> bool:  # noqa: ANN401 (the library has no types)
        """Take what `packet` changes; False if it needs what was lost."""
        flags = packet.sequence_flags
        if packet.previous_packet_dropped:
            self._is_known = False
        if flags & CLEARED or packet.incremental_state_cleared:
            self._forget()
            self._is_known = True
        if flags & NEEDED and not self._is_known:
            return False
        if packet.HasField("trace_packet_defaults"):
            self._learn_defaults(packet.trace_packet_defaults)
        if packet.HasField("interned_data"):
            self._learn(packet.interned_data)
        return True

    def clock(self, packet: Any) -> int:  # noqa: ANN401
        """The number of the clock that the time of `packet` is of."""
        return int(packet.timestamp_clock_id or self._clock or BOOTTIME)

    def track(self, event: Any) -> int | None:  # noqa: ANN401
        """The track of `event`."""
        return event.track_uuid if event.HasField("track_uuid") else self._track

    def name(self, event: Any) -> int | None:  # noqa: ANN401
        """The number in `Names` of the name of `event`."""
        if event.name:
            return self._names.number(text(event.name))
        # Events of stages have had this field for some releases only.
        return self._events.get(getattr(event, "name_iid", 0))

    def stage(self, number: int) -> tuple[int | None, int]:
        """Name, by its number in `Names`, and category of a stage or queue of a GPU."""
        return self._stages.get(number, (None, 0))

    def category(self, event: Any) -> str:  # noqa: ANN401
        """The first category of `event`."""
        if event.category_iids:
            return self._categories.get(event.category_iids[0], "")
        return text(event.categories[0]) if event.categories else ""

    def arguments(
        self, annotations: Iterable[Any], deepest: int = _DICTS
    ) -> dict[str, Any]:
        """Numbers, texts and more such arguments, by name; all others are left out."""
        found: dict[str, Any] = {}
        for each in annotations:
            name = text(each.name) or self._arguments.get(each.name_iid)
            if name is None:
                continue
            kind = each.WhichOneof("value")
            if kind in {"uint_value", "int_value"}:
                found[name] = whole(getattr(each, kind))
            elif kind == "string_value":
                found[name] = text(each.string_value)
            elif kind == "string_value_iid":
                found[name] = self._texts.get(each.string_value_iid)
            elif each.dict_entries and deepest:
                found[name] = self.arguments(each.dict_entries, deepest - 1)
        return found

    def _learn_defaults(self, defaults: Any) -> None:  # noqa: ANN401
        self._clock = defaults.timestamp_clock_id or self._clock
        if defaults.track_event_defaults.HasField("track_uuid"):
            self._track = defaults.track_event_defaults.track_uuid

    def _learn(self, interned: Any) -> None:  # noqa: ANN401
        number = self._names.number
        for each in interned.event_names:
            self._events[each.iid] = number(text(each.name))
        for each in interned.event_categories:
            self._categories[each.iid] = text(each.name)
        for each in interned.debug_annotation_names:
            self._arguments[each.iid] = text(each.name)
        for each in interned.debug_annotation_string_values:
            self._texts[each.iid] = each.str.decode("utf-8", "replace")
        for each in interned.gpu_specifications:
            self._stages[each.iid] = (number(text(each.name)), each.category)
        for each in interned.graphics_contexts:
            self.contexts[each.iid] = each.api
