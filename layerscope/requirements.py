"""What a backend needs of a layer and of a device, in fields."""

from dataclasses import dataclass
from importlib.util import find_spec

from layerscope.environment import DeviceFacts
from layerscope.layers.spec import DType, LayerSpec, StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires:
    """Where a backend can run; an empty tuple means anywhere."""

    device_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    weight_dtypes: tuple[DType, ...] = ()
    tp_sizes: tuple[int, ...] = ()
    step_kinds: tuple[StepKind, ...] = ()
    max_rows: int | None = None

    processors: int = 0
    """SMs or CUs that must be there: blocks that have to be resident at once."""

    packages: tuple[str, ...] = ()
    """Top-level modules that must be there, such as ``triton``; none is imported."""

    def refusals(self, spec: LayerSpec, device: DeviceFacts) -> list[str]:
        """Every requirement that `spec` or `device` does not meet."""
        reasons: list[str] = []
        for what, value, allowed in (
            ("device", device.type, self.device_types),
            ("architecture", device.architecture, self.architectures),
            ("dtype", spec.dtype, self.dtypes),
            ("weight dtype", spec.weight_dtype, self.weight_dtypes),
            ("tensor-parallel size", spec.tp, self.tp_sizes),
            ("step", spec.kind, self.step_kinds),
        ):
            if what == "architecture" and reasons:
                continue  # of another type of device, it says nothing
            if allowed and value not in allowed:
                names = ", ".join(str(item) for item in allowed)
                has = f"not {value}" if value else "and this device has none"
                reasons.append(f"needs {what} {names}, {has}")
        if self.max_rows is not None and spec.rows > self.max_rows:
            reasons.append(f"runs at most {self.max_rows} rows, not {spec.rows}")
        if device.processors < self.processors:
            reasons.append(
                f"needs {self.processors} resident blocks, one a processor, and "
                f"{device.name} has {device.processors}"
            )
        lacking = [name for name in self.packages if find_spec(name) is None]
        if lacking:
            reasons.append(f"needs packages that are missing: {', '.join(lacking)}")
        return reasons
