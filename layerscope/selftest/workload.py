"""Planted arms as a workload: kernels of our own, whose results torch can tell."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from math import inf
from typing import Final, NamedTuple

import torch
from cuda.bindings import driver
from torch import Tensor

from layerscope.errors import MeasurementError
from layerscope.graphs.device import facts
from layerscope.graphs.edits import Allowed
from layerscope.graphs.memory import free_bytes
from layerscope.graphs.own_kernels import OwnKernel, check
from layerscope.layers.feed import Feed, Pool, make_feed
from layerscope.layers.seeding import generator
from layerscope.regions import region, role
from layerscope.run_header import RegionBytes
from layerscope.selftest.cases import REGIONS, Chain, Launch, Start
from layerscope.selftest.kernels import (
    FACTOR,
    KERNELS,
    LOAD_WORDS,
    SOURCE,
    THREADS,
    numbers,
)
from layerscope.selftest.sizes import Sizes, sizes_of
from layerscope.study import AA_SUFFIX

ROWS: Final = 2
"""Rows of the vector."""

STEPS: Final = 8
"""Vectors that replays begin with, one a step."""

_LOW_BITS: Final = (1 << 32) - 1


class _Place(NamedTuple):
    """A launch in its pass."""

    launch: Launch
    first_chunk: int
    forks: bool  # whether the next one runs beside it


class PlantedWorkload:
    """The arms of a study of the self-test; see `Workload`.

    All is done in whole numbers of 32 bits, so results are exact.
    """

    def __init__(
        self, arms: Mapping[str, Chain], reads: int, passes: int, device: torch.device
    ) -> None:
        """Draw weights for so many passes and, on a GPU, load the kernels.

        Args:
            arms: by name; all make the same updates.
            reads: as `sizes_of` takes it.
            passes: of the longest replay.
            device: where they run; on a CPU, only their results can be told.

        Raises:
            MeasurementError: there is too little memory, or a kernel is refused.
        """
        self._sizes = sizes_of(arms, reads, facts(device), passes)
        _check_memory(self._sizes, device)
        self._arms = {name: _places(arm) for name, arm in arms.items()}
        base, *_ = arms.values()
        self._work = [update for launch in base for update in launch.work]
        draw = generator(device, 0, "selftest")
        self._weights = _weights(self._sizes, device).random_(generator=draw)
        shape = (STEPS, ROWS, self._sizes.threads)
        pool = torch.empty(shape, dtype=torch.int32, device=device)
        pool.random_(generator=draw)
        self._vector = pool[0].clone()
        self._feed = make_feed(STEPS, (Pool(pool, self._vector),), device)
        self._sums = torch.stack([self._added(slot) for slot in self._weights])
        if device.type == "cuda":
            self._kernels = {name: OwnKernel(SOURCE, name, device) for name in KERNELS}
            self._beside = torch.cuda.Stream(device)
            self._written = torch.zeros(1, dtype=torch.int32, device=device)

    @property
    def feed(self) -> Feed:
        """The vectors that replays begin with."""
        return self._feed

    def run_pass(self, arm: str, index: int, passes: int) -> None:  # noqa: ARG002
        """Enqueue the kernels of pass `index`."""
        weights = self._weights[index % self._sizes.slots]
        places = self._arms[arm.removesuffix(AA_SUFFIX)]
        for (region_name, role_name), group in groupby(places, _names):
            with region(region_name), role(role_name):
                for place in group:
                    self._enqueue(place, weights)

    def _enqueue(self, place: _Place, weights: Tensor) -> None:
        launch, stream = place.launch, torch.cuda.current_stream()
        if place.forks:
            self._beside.wait_stream(stream)
        vector = self._vector[launch.row]
        extra = weights[self._sizes.chunks] if launch.extra else weights[0]
        with torch.cuda.stream(self._beside if launch.beside else stream):
            self._kernels[launch.kernel].launch(
                self._sizes.blocks,
                THREADS,
                (
                    *(weights[place.first_chunk], extra, vector),
                    *numbers(launch, self._sizes.sweeps),
                ),
                programmatic=launch.start is not Start.PLAIN,
            )
        if launch.beside:
            stream.wait_stream(self._beside)
        if launch.writes:
            # By the stream itself: that takes a while, and no kernel.
            writes = writes_of(self._written, launch.writes)
            handle = stream.cuda_stream
            check(driver.cuStreamBatchMemOp(handle, len(writes), writes, 0))

    def poison(self) -> None:
        """Spoil the vector, which every replay loads anew."""
        self._vector.fill_(-1)

    def checked(self, passes: int) -> list[int]:
        """The last pass: its result hangs on all others."""
        return [passes - 1]

    def error(self, arm: str, index: int, passes: int) -> float:  # noqa: ARG002
        """0 where every element is as torch computes it, else infinite."""
        (pool,) = self._feed.pools
        wanted = self.result(pool.rows[int(self._feed.step)], index + 1)
        return 0.0 if torch.equal(self._vector, wanted) else inf

    def result(self, start: Tensor, passes: int) -> Tensor:
        """What so many passes make of the vector `start`, int32 [ROWS, threads]."""
        # Products of 64 bits may wrap; their low half, which alone counts, is right.
        factors = torch.tensor(self._factors(), device=start.device).unsqueeze(1)
        value = start.to(torch.int64)
        for index in range(passes):
            sums = self._sums[index % self._sizes.slots]
            value = (value * factors + sums) & _LOW_BITS
        return _as_int32(value)

    def _factors(self) -> list[int]:
        """What a pass multiplies each row by."""
        updates = [sum(row == r for r, _ in self._work) for row in range(ROWS)]
        return [pow(FACTOR, count, 1 << 32) for count in updates]

    def _added(self, weights: Tensor) -> Tensor:
        """What a pass on `weights` makes of zeros, int64 [ROWS, threads]."""
        shape = (ROWS, self._sizes.threads)
        value = torch.zeros(shape, dtype=torch.int64, device=weights.device)
        first = 0
        for row, chunks in self._work:
            read = weights[first : first + chunks]
            loads = read.view(-1, self._sizes.threads, LOAD_WORDS)
            added = loads.sum((0, 2), dtype=torch.int64)
            value[row] = (value[row] * FACTOR + added) & _LOW_BITS
            first += chunks
        return value

    @property
    def error_name(self) -> str:
        """What `error` measures."""
        return "difference from what torch computes"

    def bound(self, arm: str) -> float:  # noqa: ARG002
        """None: results are exact."""
        return 0.0

    def outputs(self, arm: str, passes: int) -> Sequence[Tensor]:  # noqa: ARG002
        """The vector."""
        return [self._vector]

    def allowed(self, arm: str) -> Allowed:  # noqa: ARG002
        """No kernel waits for one beside it, and none may be left out."""
        return Allowed()

    def abort(self, arm: str) -> None:
        """None: no kernel waits for one beside it."""

    def required_bytes(self, step: int, passes: int) -> int:  # noqa: ARG002
        """Bytes of weights that count; the same at every step."""
        return passes * self._sizes.chunks * self._sizes.chunk_bytes

    def region_bytes(self) -> Iterator[RegionBytes]:
        """Weights that count, and all that are read."""
        for arm, places in self._arms.items():
            for name in REGIONS:
                here = [p.launch for p in places if p.launch.region == name]
                chunks = sum(chunks for launch in here for _, chunks in launch.work)
                touched = chunks + sum(launch.extra for launch in here)
                if here:
                    yield RegionBytes(
                        arm=arm,
                        region=name,
                        touched=touched * self._sizes.chunk_bytes,
                        required=chunks * self._sizes.chunk_bytes,
                    )

    def cache_warnings(self, passes: int, l2_bytes: int) -> Iterator[str]:  # noqa: ARG002
        """None: the sizes follow from the cache."""
        return iter(())


def writes_of(target: Tensor, times: int) -> list[driver.CUstreamBatchMemOpParams]:
    """So many operations of a stream that write 1 to the first 32 bits of `target`."""
    kind = driver.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
    made = driver.CUstreamBatchMemOpParams()
    made.operation = kind
    write = made.writeValue
    write.operation, write.flags = kind, 0
    write.address = driver.CUdeviceptr(target.data_ptr())
    write.value = driver.cuuint32_t(1)
    return [made] * times


def _check_memory(sizes: Sizes, device: torch.device) -> None:
    available_bytes = free_bytes(device)
    if sizes.weight_bytes > available_bytes:
        msg = (
            f"its weights need {sizes.weight_bytes / 1e9:.1f} GB and "
            f"{available_bytes / 1e9:.1f} GB of the GPU are free; end what else uses it"
        )
        raise MeasurementError(msg)


def _weights(sizes: Sizes, device: torch.device) -> Tensor:
    """int32 [slots, chunks, words of a chunk], not initialised."""
    words = sizes.sweeps * sizes.threads * LOAD_WORDS
    shape = (sizes.slots, sizes.chunks + sizes.extra, words)
    return torch.empty(shape, dtype=torch.int32, device=device)


def _places(arm: Chain) -> list[_Place]:
    read = [sum(chunks for _, chunks in launch.work) for launch in arm]
    firsts = list(accumulate(read, initial=0))[:-1]
    forks = [launch.beside for launch in arm[1:]] + [False]
    return [_Place(*place) for place in zip(arm, firsts, forks, strict=True)]


def _names(place: _Place) -> tuple[str, str]:
    return place.launch.region, place.launch.role


def _as_int32(value: Tensor) -> Tensor:
    """Numbers of 32 bits without a sign, as int32 of the same bits."""
    return (value - ((value >> 31) << 32)).to(torch.int32)
