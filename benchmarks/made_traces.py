"""Writes fixtures/traces anew: traces that no GPU made, for docs, notebooks and tests.

Usage: ``python benchmarks/made_traces.py [FOLDER]``

They look as torch.profiler writes them, of a small mixture of experts that nobody
serves: eight layers, a prefill step and six decode steps, by kernels with names of
vLLM's. In ``eager`` every kernel is launched by itself, in ``graph`` a decode step is
one launch of a CUDA graph, and experts are run by other kernels. Times are made up,
with a little scatter that a seed fixes. The device's name says that there was none.
"""

import gzip
import json
import random
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "fixtures" / "traces"

LAYERS: Final = 8
DECODES: Final = 6
SEED: Final = 0
SCATTER: Final = 0.01
BEGIN_NS: Final = 1_790_000_000_000_000_000
PREFILL: Final = 12.0
"""How much longer kernels take in the prefill step."""

EAGER_LAUNCH_NS: Final = 9_600
GRAPH_GAP_NS: Final = 900
STEP_NS: Final = 150_000
"""Time of the host between two steps."""


class Kernel(NamedTuple):
    """A kernel of one step, as its row in a trace shows it."""

    name: str
    duration_ns: int
    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)


NORM: Final = Kernel(
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, "
    "c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
    2_300,
    (8, 1, 1),
)
ATTENTION: Final = (
    NORM,
    Kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 6_400),
    Kernel(
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, "
        "c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, int, long, long, int)",
        1_900,
        (8, 1, 1),
    ),
    Kernel(
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, "
        "(vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*, __nv_bfloat16*, long*)",
        2_000,
        (8, 1, 1),
    ),
    Kernel(
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwd"
        "Sm90<flash::CollectiveMainloopFwdSm90<2> > > >(flash::FlashAttnFwdSm90::"
        "Params)",
        14_200,
        (132, 1, 1),
        (384, 1, 1),
    ),
)
O_PROJ: Final = (Kernel("nvjet_tst_64x8_64x16_2x1_v_bz_TNT", 4_300), NORM)
ROUTING: Final = (
    Kernel("nvjet_tst_8x64_64x16_1x4_h_bz_TNT", 2_900),
    Kernel(
        "void vllm::moe::topkGatingSoftmax<4, 128, 4, 16, int>(float const*, bool "
        "const*, float*, int, int*, int*, int, int, int)",
        2_600,
        (2, 1, 1),
    ),
    Kernel(
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*, "
        "int*, int, int, int, unsigned long, int*)",
        4_100,
        (1, 1, 1),
        (1024, 1, 1),
    ),
)
ACTIVATION: Final = Kernel(
    "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel"
    "<c10::BFloat16>(c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 "
    "const*, int)",
    2_200,
    (64, 1, 1),
)
COMBINE: Final = Kernel(
    "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 "
    "const*, int)",
    2_000,
    (8, 1, 1),
)
GROUPED: Final = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::"
    "GroupProblemShape<cute::tuple<int, int, int> > > >(Params)"
)
EXPERTS: Final = {
    "eager": (
        *ROUTING,
        Kernel("fused_moe_kernel", 31_000, (512, 1, 1), (128, 1, 1)),
        ACTIVATION,
        Kernel("fused_moe_kernel", 19_000, (512, 1, 1), (128, 1, 1)),
        COMBINE,
    ),
    "graph": (
        *ROUTING,
        Kernel(
            GROUPED,
            24_500,
            (132, 1, 1),
            (384, 1, 1),
        ),
        ACTIVATION,
        Kernel(
            GROUPED,
            15_500,
            (132, 1, 1),
            (384, 1, 1),
        ),
        COMBINE,
    ),
}
BEFORE: Final = (
    Kernel(
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, "
        "long, unsigned int, 2, 2, -2>(at::cuda::detail::TensorInfo<c10::BFloat16, "
        "unsigned int>)",
        2_400,
        (8, 1, 1),
    ),
)
AFTER: Final = (
    NORM,
    Kernel("nvjet_tst_128x8_64x12_4x1_v_bz_TNT", 88_000),
    Kernel(
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::"
        "native::ArgMaxOps<float>, unsigned int, long, 4, 4> >(at::native::ReduceOp)",
        9_800,
        (8, 1, 1),
        (512, 1, 1),
    ),
)


class Writer:
    """Grows the events of one trace."""

    def __init__(self, kind: str) -> None:
        """Begin with no event."""
        self.events: list[dict[str, Any]] = []
        self._kind = kind
        self._draw = random.Random(SEED)  # noqa: S311 (not a secret)
        self._host_ns = self._device_ns = 0
        self._correlation = 0

    def step(self, name: str, *, factor: float = 1.0) -> None:
        """Add a step of all layers, within an annotation."""
        begin_ns = self._host_ns
        layer = (*ATTENTION, *O_PROJ, *EXPERTS[self._kind])
        kernels = [*BEFORE, *(layer * LAYERS), *AFTER]
        is_graph = self._kind == "graph" and factor == 1.0
        if is_graph:
            self._launch("cudaGraphLaunch")
        for kernel in kernels:
            if not is_graph:
                self._launch("cudaLaunchKernel")
            self._run(kernel, factor)
        spent = {"cat": "user_annotation", "pid": 1, "tid": 1, "name": name}
        end_ns = max(self._host_ns, self._device_ns)
        self.events.append(spent | _times(begin_ns, end_ns - begin_ns))
        self._host_ns = end_ns + STEP_NS

    def _launch(self, name: str) -> None:
        self._correlation += 1
        call = {"cat": "cuda_runtime", "pid": 1, "tid": 1, "name": name}
        args = {"correlation": self._correlation}
        self.events.append(call | _times(self._host_ns, 3_000) | {"args": args})
        self._host_ns += EAGER_LAUNCH_NS

    def _run(self, kernel: Kernel, factor: float) -> None:
        start_ns = max(self._host_ns, self._device_ns + GRAPH_GAP_NS)
        scatter = 1 + SCATTER * self._draw.uniform(-1, 1)
        duration_ns = round(kernel.duration_ns * factor * scatter)
        args = {
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": self._correlation,
            "registers per thread": 128,
            "shared memory": 49_152,
            "grid": kernel.grid,
            "block": kernel.block,
        }
        row = {"cat": "kernel", "pid": 0, "tid": 7, "name": kernel.name, "args": args}
        self.events.append(row | _times(start_ns, duration_ns))
        self._device_ns = start_ns + duration_ns


def _times(start_ns: int, duration_ns: int) -> dict[str, Any]:
    """In microseconds, as the profiler writes them."""
    return {"ph": "X", "ts": start_ns / 1000, "dur": duration_ns / 1000}


def document(kind: str) -> dict[str, Any]:
    """The trace ``eager`` or ``graph``."""
    writer = Writer(kind)
    writer.step("execute_context_1(512)_generation_0(0)", factor=PREFILL)
    for _ in range(DECODES):
        writer.step("execute_context_0(0)_generation_8(8)")
    return {
        "schemaVersion": 1,
        "made_by": "layerscope, benchmarks/made_traces.py: synthetic, no GPU ran this",
        "deviceProperties": [
            {
                "id": 0,
                "name": "no GPU (a made-up trace)",
                "totalGlobalMem": 80_000_000_000,
                "computeMajor": 9,
                "computeMinor": 0,
                "numSms": 132,
            }
        ],
        "baseTimeNanoseconds": BEGIN_NS,
        "displayTimeUnit": "ms",
        "traceEvents": writer.events,
    }


def files() -> Iterator[tuple[str, bytes]]:
    """Every trace by the name of its file; the same bytes each time."""
    for kind in EXPERTS:
        text = json.dumps(document(kind), separators=(",", ":"))
        yield f"made-{kind}.json.gz", gzip.compress(text.encode(), mtime=0)


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files():
        (folder / name).write_bytes(content)
        print(f"{folder / name}: {len(content):,} bytes")


if __name__ == "__main__":
    parser = ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=FOLDER,
        metavar="FOLDER",
        help="for them",
    )
    main(parser.parse_args().folder)
