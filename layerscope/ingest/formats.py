"""The formats of traces that can be read, and what only looks like one."""

from enum import StrEnum


class Format(StrEnum):
    """A format, as reports call it."""

    KINETO = "Kineto JSON"
    PROTON = "Proton Chrome trace"
    NSYS = "Nsight Systems SQLite"
    ROCPROF_CSV = "rocprofv3 CSV"
    ROCPROF_JSON = "rocprofv3 JSON"
    ROCPD = "rocpd"
    PERFETTO = "Perfetto protobuf"
