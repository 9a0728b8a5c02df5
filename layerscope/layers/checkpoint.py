"""One layer's weights from a checkpoint folder, reading nothing else of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.families import FAMILIES
from layerscope.layers.model_config import model_from_folder
from layerscope.layers.spec import ModelShape
from layerscope.layers.tensors import Part, Source

__all__ = ["load_layer", "model_from_folder"]

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


def load_layer(
    path: str | Path, model: ModelShape, layer: int
) -> dict[str, Tensor] | None:
    """The whole weights of `layer` on the CPU, or None if the folder has none.

    Names and layout are those of `families.layer_tensors` at one rank, in the types
    that the checkpoint has. Experts may be stored one by one or fused.

    Args:
        path: a folder with ``model.safetensors``, or shards and their index.
        model: from `model_from_folder`; decides names and shapes.
        layer: from 0; that it is in range is for `LayerSpec.check` to say.

    Raises:
        InputError: a file is missing, truncated or malformed, or a tensor is missing
            or has another shape than the config says.
    """
    shards = _shards(Path(path))
    if shards is None:
        return None
    with _Reader(shards, f"model.layers.{layer}.") as reader:
        sources = FAMILIES[model.family].sources(model)
        return {name: _assemble(reader, source) for name, source in sources.items()}


class _Shards:
    """Which file holds which tensor."""

    def __init__(self, listing: Path, files: dict[str, Path] | None) -> None:
        self.listing = listing
        """The file to name when a tensor is missing."""

        self._files = files
        """By tensor; None if all are in `listing`."""

    def find(self, tensor: str) -> Path | None:
        """The file of `tensor`, as far as the index knows."""
        return self.listing if self._files is None else self._files.get(tensor)


def _shards(folder: Path) -> _Shards | None:
    index = folder / _INDEX
    if index.exists():
        return _Shards(index, _read_index(index))
    single = folder / _SINGLE
    return _Shards(single, None) if single.exists() else None


def _read_index(index: Path) -> dict[str, Path]:
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = {tensor: Path(name) for tensor, name in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{index}: is not an index of shards ({error!r}); download it again"
        raise InputError(msg) from error
    for shard in shards.values():
        if shard.is_absolute() or ".." in shard.parts:
            msg = f"{index}: names {shard}, which is outside its folder"
            raise InputError(msg)
    return {tensor: index.parent / shard for tensor, shard in shards.items()}


class _Reader:
    """Reads tensors of one layer; opens every file at most once."""

    def __init__(self, shards: _Shards, prefix: str) -> None:
        self._shards = shards
        self._prefix = prefix
        self._open: dict[Path, Any] = {}
        self._names: dict[Path, frozenset[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.__exit__(None, None, None)

    def has(self, part: Part) -> bool:
        """Whether the checkpoint has `part`."""
        name = self._prefix + part.name
        path = self._shards.find(name)
        return path is not None and name in self._keys(path)

    def read(self, part: Part) -> Tensor:
        """The tensor of `part`, checked against its shape before it is read."""
        name = self._prefix + part.name
        path = self._shards.find(name)
        if path is None or name not in self._keys(path):
            msg = (
                f"{path or self._shards.listing}: has no tensor {name}; "
                "is the download complete?"
            )
            raise InputError(msg)
        file = self._file(path)
        shape = tuple(_guard(path, lambda: file.get_slice(name).get_shape()))
        if shape != part.shape:
            msg = (
                f"{path}: {name} is {list(shape)}, and by config.json must be "
                f"{list(part.shape)}"
            )
            raise InputError(msg)
        tensor: Tensor = _guard(path, lambda: file.get_tensor(name))
        # An fp8 tensor means nothing without scales, whose layout is the publisher's.
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            msg = f"{path}: {name} is {tensor.dtype}; quantised weights cannot be read"
            raise InputError(msg)
        return tensor

    def _keys(self, path: Path) -> frozenset[str]:
        if path not in self._names:
            self._names[path] = frozenset(self._file(path).keys())
        return self._names[path]

    def _file(self, path: Path) -> Any:  # noqa: ANN401 (safetensors has no type for it)
        if path not in self._open:
            if not path.exists():
                msg = (
                    f"{path}: no such file, but {self._shards.listing.name} names it; "
                    "is the download complete?"
                )
                raise InputError(msg)
            self._open[path] = _guard(path, lambda: safe_open(path, framework="pt"))
        return self._open[path]


def _guard(path: Path, read: Callable[[], Any]) -> Any:  # noqa: ANN401 (as `read`)
    try:
        return read()
    except (SafetensorError, OSError) as error:
        msg = f"{path}: is truncated or malformed ({error}); download it again"
        raise InputError(msg) from error


def _assemble(reader: _Reader, source: Source) -> Tensor:
    if source.fused is not None and reader.has(source.fused):
        return reader.read(source.fused)
    if not source.experts:
        return _join(reader, source.parts)
    return torch.stack(
        [
            _join(reader, tuple(_of_expert(part, expert) for part in source.parts))
            for expert in range(source.experts)
        ]
    )


def _of_expert(part: Part, expert: int) -> Part:
    return Part(part.name.format(expert=expert), part.shape)


def _join(reader: _Reader, parts: tuple[Part, ...]) -> Tensor:
    tensors = [reader.read(part) for part in parts]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
