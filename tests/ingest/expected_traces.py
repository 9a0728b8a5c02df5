"""What the real traces of other tools hold, and why some are refused.

The figures are those of the manifest beside the traces, to its last digit. Three sums
differ from it by that digit, and one by 19 µs: it was made with binary floats, which
tell absolute microseconds apart only to 0.25 µs, and these are of the file's decimals.
"""

from typing import Final, NamedTuple


class Figures(NamedTuple):
    """Of the kernels of one device, without copies and fills."""

    kernels: int
    streams: int
    span_ms: float  # first start to last end
    sum_ms: float  # of durations
    union_ms: float  # in which at least one ran


READ: Final[dict[str, dict[int | None, Figures]]] = {
    "HolisticTraceAnalysis/backward_thread.json": {
        0: Figures(1, 1, 0.045, 0.045, 0.045)
    },
    "HolisticTraceAnalysis/critical_path_alexnet_trace.json.gz": {
        0: Figures(79, 2, 12840.244, 10.692, 10.630)
    },
    "HolisticTraceAnalysis/cuda_event_sync_multi_stream_trace.json.gz": {
        0: Figures(3, 3, 19.473, 0.369, 0.369)
    },
    "HolisticTraceAnalysis/df_index_resolver.json.gz": {
        1: Figures(19370, 2, 1732.965, 977.859, 977.859)
    },
    "HolisticTraceAnalysis/large_integer_rank-70.pt.trace.json.gz": {
        0: Figures(1, 1, 0.050, 0.050, 0.050)
    },
    "HolisticTraceAnalysis/mi250_minitoy_train_ROCm6_2_kineto.json.gz": {
        2: Figures(14, 1, 8.594, 0.111, 0.111)
    },
    "HolisticTraceAnalysis/nccl_data.json.gz": {
        0: Figures(2700, 2, 660.551, 162.532, 155.215)
    },
    "HolisticTraceAnalysis/negative_queue_length_rank0.json.gz": {
        0: Figures(6080, 5, 1227.177, 401.445, 396.315)
    },
    "HolisticTraceAnalysis/ns_resolution_rank-0.pt.trace.json.gz": {
        0: Figures(4350, 1, 480.029, 468.154, 468.154)
    },
    "HolisticTraceAnalysis/sampled_rank-0.json.gz": {
        0: Figures(1154, 4, 1222.818, 606.519, 547.303)
    },
    "HolisticTraceAnalysis/sampled_rank-1.json.gz": {
        1: Figures(1104, 4, 1231.182, 651.026, 575.496)
    },
    "HolisticTraceAnalysis/trace_compare_base.json.gz": {
        1: Figures(6, 1, 274.039, 0.432, 0.432)
    },
    "HolisticTraceAnalysis/trace_compare_test.json.gz": {
        1: Figures(5, 1, 157.124, 0.428, 0.428)
    },
    "HolisticTraceAnalysis/trace_diff_test.json.gz": {
        1: Figures(9876, 3, 744.780, 801.858, 621.446)
    },
    "HolisticTraceAnalysis/triton_example.json.gz": {
        0: Figures(1, 1, 0.002, 0.002, 0.002)
    },
    "HolisticTraceAnalysis/with_gpu_user_annotation_step_based.json.gz": {
        0: Figures(130, 1, 7.605, 0.290, 0.290)
    },
    "JACC.jl/3648722_results.pftrace": {4: Figures(15, 1, 7024.978, 0.195, 0.195)},
    "NVIDIA-Fuser/report1.581632.sqlite": {0: Figures(19, 1, 507.663, 0.394, 0.394)},
    "TraceLens/908_results.json.gz": {
        2: Figures(43915, 567, 15122.023, 4441.741, 4233.112)
    },
    "TraceLens/b200_eager_trace.json.gz": {0: Figures(768, 1, 83.366, 10.863, 10.794)},
    "TraceLens/h100_Qwen1.5-0.5B-Chat.json.gz": {
        0: Figures(1465, 1, 49.653, 45.433, 45.433)
    },
    "TraceLens/h100_bert-small-uncased.json.gz": {
        0: Figures(60, 1, 3.908, 0.307, 0.307)
    },
    "TraceLens/mi210_gpu_only_trace.json.gz": {1: Figures(562, 1, 5.980, 5.343, 5.343)},
    "TraceLens/mi300_Qwen1.5-0.5B-Chat.json.gz": {
        2: Figures(1516, 1, 47.086, 43.062, 43.062)
    },
    "TraceLens/mi300_bert-small-uncased.json.gz": {
        2: Figures(60, 1, 3.496, 0.388, 0.388)
    },
    "TraceLens/nv_moe_01_many_experts_few_tokens.json.gz": {
        0: Figures(36, 1, 1.546, 0.231, 0.231)
    },
    "TraceLens/sglang_Qwen3-8B_decode.json.gz": {
        9: Figures(555, 2, 473.741, 9.765, 9.760)
    },
    "TraceLens/sglang_decode_capture_bs_32_rank0.json.gz": {
        9: Figures(2, 1, 0.011, 0.011, 0.011)
    },
    "TraceLens/vllm_decode_full_graph_capture_rank_0.pt.trace.json.gz": {
        2: Figures(7, 1, 57.563, 0.020, 0.020)
    },
    "TraceLens/vllm_decode_full_graph_execution.json.gz": {
        2: Figures(425, 1, 10.700, 10.675, 10.675)
    },
    "TraceLens/vllm_prefilldecode_piecewise_graph_execution.json.gz": {
        2: Figures(413, 1, 156.353, 156.009, 156.008)
    },
    "kineto/after_fix_trace.json": {0: Figures(1, 1, 0.000, 0.000, 0.000)},
    "kineto/before_fix_trace.json": {0: Figures(1, 1, 0.000, 0.000, 0.000)},
    "kineto/gpu_metrics_input.json": {0: Figures(30, 1, 11.227, 0.048, 0.048)},
    "kineto/tb_resnet50_old_worker0.pt.trace.json.gz": {
        0: Figures(9564, 1, 927.970, 640.354, 640.354)
    },
    "nsys-ai/healthy_1pct.v2.sqlite": {0: Figures(400, 1, 403.990, 400.000, 400.000)},
    "nsys-ai/mfu_2gpu_after.sqlite": {
        0: Figures(1793, 1, 299.220, 237.473, 237.473),
        1: Figures(1794, 1, 299.238, 251.362, 251.362),
    },
    "nsys-ai/mfu_2gpu_before.sqlite": {
        0: Figures(1993, 1, 299.849, 270.876, 270.863),
        1: Figures(2017, 1, 298.662, 264.325, 264.325),
    },
    "nsys-ai/mock.sqlite": {0: Figures(2, 1, 18.255, 0.004, 0.004)},
    "param/dlrm_kineto/worker0_step_12.1694128201545.pt.trace.json.gz": {
        0: Figures(245, 3, 12.542, 6.832, 6.571)
    },
    "param/dlrm_kineto/worker1_step_12.1694128201556.pt.trace.json.gz": {
        1: Figures(310, 3, 18.749, 12.582, 12.302)
    },
    "param/dlrm_kineto/worker2_step_12.1694128201554.pt.trace.json.gz": {
        2: Figures(246, 3, 10.887, 4.560, 4.285)
    },
    "param/dlrm_kineto/worker3_step_12.1694128201557.pt.trace.json.gz": {
        3: Figures(315, 3, 18.853, 11.014, 10.690)
    },
    "param/dlrm_kineto/worker4_step_12.1694128201547.pt.trace.json.gz": {
        4: Figures(251, 3, 16.139, 7.713, 7.676)
    },
    "param/dlrm_kineto/worker5_step_12.1694128201549.pt.trace.json.gz": {
        5: Figures(245, 3, 15.929, 7.292, 7.252)
    },
    "param/dlrm_kineto/worker6_step_12.1694128201553.pt.trace.json.gz": {
        6: Figures(246, 3, 10.941, 4.609, 4.340)
    },
    "param/dlrm_kineto/worker7_step_12.1694128201553.pt.trace.json.gz": {
        7: Figures(246, 3, 10.502, 2.805, 2.639)
    },
    "pytorch-trace-tui/test_trace.json": {0: Figures(7, 2, 0.717, 0.411, 0.411)},
    "rocm-systems/kernel_trace.csv": {4: Figures(9, 4, 0.144, 0.096, 0.096)},
    "rocm-systems/memory_copy_trace.csv": {},
    "rocprof-unified-viewer/decode_hip_api_trace.csv": {
        1: Figures(144, 1, 180.266, 1.857, 1.857)
    },
    "rocprof-unified-viewer/decode_kernel_trace.csv": {
        1: Figures(144, 1, 180.266, 1.857, 1.857)
    },
    "rocprof-unified-viewer/prefill_hip_api_trace.csv": {
        1: Figures(1128, 2, 69.879, 66.067, 66.067)
    },
    "rocprof-unified-viewer/prefill_kernel_trace.csv": {
        1: Figures(1128, 2, 69.879, 66.067, 66.067)
    },
    "rocprofiler-sdk/kernel_trace.csv": {1: Figures(7, 4, 0.302, 0.795, 0.299)},
    "test-cuda/report1.sqlite": {0: Figures(4, 4, 69.592, 0.537, 0.537)},
}
"""By file, then by device."""

_NO_KERNELS: Final = "cannot be analysed: of kernels"

REFUSED: Final = {
    "DynamicViT/nsys_profile.sqlite": "Nsight Systems without work of a GPU",
    "HolisticTraceAnalysis/cpu_only_rank-34.pt.trace.json.gz": _NO_KERNELS,
    "HolisticTraceAnalysis/distributed_info_not_found.json.gz": _NO_KERNELS,
    "HolisticTraceAnalysis/mtia_inference_rank_0.json.gz": "an MTIA accelerator",
    "HolisticTraceAnalysis/rank_non_gpu.json.gz": _NO_KERNELS,
    "HolisticTraceAnalysis/rank_not_found.json.gz": _NO_KERNELS,
    "JACC.jl/3634724_results.pftrace": _NO_KERNELS,
    "JACC.jl/3634736_results.pftrace": _NO_KERNELS,
    "JACC.jl/3635359_results.pftrace": _NO_KERNELS,
    "JACC.jl/report1.sqlite": "Nsight Systems without work of a GPU",
    "JACC.jl/results.db": "a database of rocprof version 1",
    "lighttransport-gemm/profile.sqlite": "Nsight Systems without work of a GPU",
    "perfetto/flow_events_json_v1.json": _NO_KERNELS,
    "perfetto/flow_events_json_v2.json": _NO_KERNELS,
    "roc-optiq/rocprof_compute_23ed6f36.db.gz": "a database of rocprof-compute",
    "rocm-systems/hip_trace.csv": _NO_KERNELS,
    "rocm-systems/marker_api_trace.csv": _NO_KERNELS,
    "rocmProfileData/mytrace.rpd.gz": "a database of rocmProfileData",
    "rocprofiler-sdk/marker_api_trace.csv": _NO_KERNELS,
    "triton/cuda.json": "a tree of Triton's Proton",
    "triton/hip.json": "a tree of Triton's Proton",
    "triton/triton.json": "a tree of Triton's Proton",
    "tritonbench/proton.hatchet": "a tree of Triton's Proton",
}
"""By file, a part of the message."""
