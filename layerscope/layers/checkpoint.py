"""One layer's weights from a checkpoint folder, reading nothing else of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.families import FAMILIES, layer_tensors
from layerscope.layers.model_config import model_from_folder
from layerscope.layers.spec import QUANT_BLOCK, DType, LayerSpec, ModelShape
from layerscope.layers.tensors import Part, Source, TensorSpec
from layerscope.layers.weights import (
    TORCH_DTYPES,
    BlockScaled,
    Weights,
    join,
    keeps_blocks,
    stack,
)

__all__ = ["StoredLayer", "load_layer", "model_from_folder"]

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_PROBE: Final = Part("input_layernorm.weight", ())
"""Every layer of every family has it."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredLayer(Mapping[str, Tensor | BlockScaled]):
    """The whole weights of a layer by name, as a checkpoint has them."""

    folder: Path
    weights: Weights
    dtypes: Mapping[str, frozenset[torch.dtype]]
    """Of each in the checkpoint; several where its parts differ."""

    def __getitem__(self, name: str) -> Tensor | BlockScaled:
        return self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def origin(self, spec: LayerSpec, rank: int = 0) -> str:
        """The folder, and how a rank's matrices differ from those in it."""
        tables = [table for table in layer_tensors(spec) if table.quantised]
        held = frozenset[torch.dtype]().union(*(self.dtypes[t.name] for t in tables))
        there = " and ".join(sorted(map(_dtype_name, held)))
        changed = ["converted"]
        if held == {TORCH_DTYPES[spec.weight_dtype]}:
            changed = [
                f"{table.name} quantised again"
                for table in tables
                if spec.weight_dtype is DType.FLOAT8_E4M3
                and not self._is_kept(table, spec, rank)
            ]
        note = f" ({there} there, {', '.join(changed)})" if changed else ""
        return f"read from {self.folder}{note}"

    def _is_kept(self, table: TensorSpec, spec: LayerSpec, rank: int) -> bool:
        weight = self[table.name]
        return isinstance(weight, BlockScaled) and keeps_blocks(
            weight, table, spec, rank
        )


def _dtype_name(dtype: torch.dtype) -> str:
    known = {value: key.value for key, value in TORCH_DTYPES.items()}
    return known.get(dtype, str(dtype).removeprefix("torch."))


def load_layer(path: str | Path, model: ModelShape, layer: int) -> StoredLayer | None:
    """The whole weights of `layer` on the CPU, or None if the folder has none.

    Names and layout are those of `families.layer_tensors` at one rank, in the types
    that the checkpoint has. Experts may be stored one by one or fused, and the model
    with its head (``model.layers.0.…``) or without (``layers.0.…``). A matrix
    ``X`` in fp8 has its scales in ``X_scale_inv``, one a block of 128 x 128; where
    parts that are joined end within a block, the whole is dequantised to float32.

    Args:
        path: a folder with ``model.safetensors``, or shards and their index.
        model: from `model_from_folder`; decides names and shapes.
        layer: from 0; that it is in range is for `LayerSpec.check` to say.

    Raises:
        InputError: a file is missing, truncated or malformed, files are there that no
            index lists, or a tensor or its scales are missing or have another shape or
            type than the config says.
    """
    folder = Path(path)
    shards = _shards(folder)
    if shards is None:
        return None
    weights: dict[str, Tensor | BlockScaled] = {}
    dtypes: dict[str, frozenset[torch.dtype]] = {}
    with _Reader(shards, layer) as reader:
        for name, source in FAMILIES[model.family].sources(model).items():
            reader.dtypes = set()
            weights[name] = _assemble(reader, source)
            dtypes[name] = frozenset(reader.dtypes)
    return StoredLayer(folder, weights, dtypes)


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
    if single.exists():
        return _Shards(single, None)
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        msg = (
            f"{folder}: has {found[0]}{more}, but neither {_SINGLE} nor {_INDEX}, "
            "which says what is in which file; is the download complete?"
        )
        raise InputError(msg)
    return None


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

    def __init__(self, shards: _Shards, layer: int) -> None:
        self._shards = shards
        self.dtypes: set[torch.dtype] = set()
        """Of what was read since it was last emptied."""

        self._open: dict[Path, Any] = {}
        self._names: dict[Path, frozenset[str]] = {}
        # A model saved without its head has no `model.` before its layers.
        self._prefix = f"layers.{layer}."
        if not self.has(_PROBE):
            self._prefix = f"model.layers.{layer}."

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

    def read(self, part: Part) -> Tensor | BlockScaled:
        """The tensor of `part`, with its scales if it is in fp8."""
        tensor = self._tensor(part)
        self.dtypes.add(tensor.dtype)
        if tensor.dtype is torch.float8_e4m3fn and len(part.shape) > 1:
            return BlockScaled(tensor, self._scale(part))
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            self.refuse(part, f"is {_dtype_name(tensor.dtype)}, which is not supported")
        return tensor

    def refuse(self, part: Part, problem: str) -> NoReturn:
        """Raise the one-line error about `part`."""
        name = self._prefix + part.name
        msg = f"{self._shards.find(name)}: {name} {problem}"
        raise InputError(msg)

    def _scale(self, part: Part) -> Tensor:
        blocks = (-(-length // QUANT_BLOCK) for length in part.shape[-2:])
        scale = Part(f"{part.name}_scale_inv", (*part.shape[:-2], *blocks))
        tensor = self._tensor(scale)
        if tensor.dtype not in (torch.float32, torch.bfloat16):
            held = _dtype_name(tensor.dtype)
            self.refuse(scale, f"is {held}, and must be float32 or bfloat16")
        return tensor.float()

    def _tensor(self, part: Part) -> Tensor:
        """A tensor, checked against its shape before it is read."""
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
            by_config = f"by config.json must be {list(part.shape)}"
            self.refuse(part, f"is {list(shape)}, and {by_config}")
        tensor: Tensor = _guard(path, lambda: file.get_tensor(name))
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


def _assemble(reader: _Reader, source: Source) -> Tensor | BlockScaled:
    if source.fused is not None and reader.has(source.fused):
        return _fused(reader, source, source.fused)
    if not source.experts:
        return join([reader.read(part) for part in source.parts])
    return stack(
        [
            join([reader.read(_of_expert(part, expert)) for part in source.parts])
            for expert in range(source.experts)
        ]
    )


def _of_expert(part: Part, expert: int) -> Part:
    return Part(part.name.format(expert=expert), part.shape)


def _fused(reader: _Reader, source: Source, fused: Part) -> Tensor | BlockScaled:
    weight = reader.read(fused)
    above = [part.shape[-2] for part in source.parts[:-1]]
    if isinstance(weight, BlockScaled) and any(rows % QUANT_BLOCK for rows in above):
        # Writers differ in whether a block then ends with the rows of gate.
        shared = f"has scales that gate and up share: each has {above[0]} rows"
        reader.refuse(fused, f"{shared}; store the experts one by one")
    return weight
