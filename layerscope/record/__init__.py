"""Who watches a replay: CUPTI, torch.profiler, NVML clocks, NVTX ranges."""
